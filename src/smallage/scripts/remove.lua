-- Removes entries by hand.
-- KEYS  1 DLQ (entries are removed)  2 audit log  3 the bulk operations (asked whether anything can be written)
--       4 what is known of the operation that this is a part of, if it is of one
-- ARGV  1 'removed' for a line of the audit log each, or 'purged' for one of all  2 who  3 the note  4 the operation, or ''
--       5 lines kept in the audit log  6 what every queue stream begins with  7 '1' to remove them also where there is no
--       memory for lines and counts  8… the entries
-- Gives {'OK', 1 if lines and counts were written, else 0, for each entry (for fewer, if they were so large that it has
--       taken long) 1 if it was there, else 0} or {'MOVED'} (the operation does not run any more)
-- One step, because nothing may leave the DLQ without a line, nor be counted twice. Only a lack of memory is worse, and
--       it is by removing that it ends.
local dlq, log, operation = KEYS[1], KEYS[2], KEYS[4]
local what, who, note, part_of, most, queues = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local FIRST = 8
-- Bytes and fields that were read. More than this is left for another step.
local MOST_WORK = 1400000
-- What a line keeps of a text (bytes).
local LONGEST = 512

if not still_runs(operation) then
  return {'MOVED'}
end
local missing = denied('xadd', log, '*', 'x', 'x') or denied('xdel', dlq, '0-1')
  or operation and denied('hincrby', operation, 'x', 1)
local refused = refused_to_write(KEYS[3])
if missing or (refused and not (ARGV[7] == '1' and string.find(refused.err, 'OOM', 1, true))) then
  return missing or refused
end
local writing = not refused

-- A job's id and task, as far as a line keeps them; a foreign entry has none.
local function job_of(fields)
  local id, task, source = '', '', ''
  for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    if name == 'id' then
      id = value
    elseif name == 'task' then
      task = value
    elseif name == 'dlq_source' then
      source = value
    end
  end
  if source ~= '' and string.sub(source, 1, #queues) ~= queues then
    return '', ''
  end
  return string.sub(id, 1, LONGEST), string.sub(task, 1, LONGEST)
end

local reply, work, tried, done, first, last = {'OK', writing and 1 or 0}, 0, 0, 0, nil, nil
for i = FIRST, #ARGV do
  local entry, there = ARGV[i], true
  if what == 'removed' and writing then
    local found = pcall('XRANGE', dlq, entry, entry)
    there = not found.err and #found > 0
    if there then
      work = work + weight(found[1][2])
      local id, task = job_of(found[1][2])
      audit(log, most, what, who, entry, id, task, '', note, part_of)
    end
  end
  local gone = there and pcall('XDEL', dlq, entry) == 1
  if gone then
    done, first, last = done + 1, first or entry, entry
  end
  tried = tried + 1
  reply[tried + 2] = gone and 1 or 0
  if work > MOST_WORK then
    break
  end
end
if not writing then
  return reply
end
if what == 'purged' and done > 0 then
  audit(log, most, what, who, first, '', '', done .. ' entries, up to ' .. last, note, part_of)
end
count_done(operation, done, done < tried and {entry_gone = tried - done} or {})
return reply
