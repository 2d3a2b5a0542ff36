-- Removes entries as the standing policy wants it: those that nobody waits for.
-- KEYS  1 lease  2 state  3 DLQ (entries are removed)  4 flights  5 audit log  6 the bulk operations (asked whether
--       anything can be written)  7… the entries of groups in the index
-- ARGV  1 token  2 generation of the rules  3 who  4 the note  5 lines kept in the audit log  6… for each entry two: its
--       id; the number of the key of the group that it waits in, or 0 if the rules do not want it
-- Gives {'OK', entries looked at (fewer than given, if they were large), entries removed} or {'FENCED'} or {'MOVED'}
-- One step, because between a look and a removal an entry might be read, planned, or its job put back.
if call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local state = call('HMGET', KEYS[2], 'cursor', 'generation', 'judged', 'judge_until')
if not state[1] or (tonumber(state[2] or '') or 0) ~= tonumber(ARGV[2]) then
  return {'MOVED'}
end
local cursor, judged, judge_until = state[1], state[3] or NEVER, state[4] or NEVER
local dlq, flights, log = KEYS[3], KEYS[4], KEYS[5]
local FIRST, MOST_WORK = 6, 1400000
local missing = denied('xadd', log, '*', 'x', 'x') or denied('xdel', dlq, '0-1') or refused_to_write(KEYS[6])
if missing then
  return missing
end

local aloft = pcall('HLEN', flights)
aloft = type(aloft) == 'number' and aloft > 0
local work = 0

-- Whether the entry's job is in flight, or it is gone.
local function is_in_flight(entry)
  local found = pcall('XRANGE', dlq, entry, entry)
  if found.err or #found == 0 then
    return true
  end
  local fields, id = found[1][2], nil
  for i = 1, #fields, 2 do
    if fields[i] == 'id' then
      id = fields[i + 1]
    end
  end
  work = work + weight(fields)
  return id and pcall('HGET', flights, id)
end

local function stays(entry, group)
  if before(cursor, entry) or (before(judged, entry) and not before(judge_until, entry)) then
    return true
  end
  -- Where the index cannot be read, it may be in it.
  return group and pcall('ZSCORE', group, entry) or aloft and is_in_flight(entry)
end

local looked_at, removed, first, last = 0, 0, nil, nil
for i = FIRST, #ARGV, 2 do
  local entry = ARGV[i]
  if not stays(entry, KEYS[tonumber(ARGV[i + 1])]) and pcall('XDEL', dlq, entry) == 1 then
    removed, first, last = removed + 1, first or entry, entry
  end
  looked_at = looked_at + 1
  if work > MOST_WORK then
    break
  end
end
if removed > 0 then
  audit(log, ARGV[5], 'purged', ARGV[3], first, '', '', removed .. ' entries, up to ' .. last, ARGV[4], '')
end
return {'OK', looked_at, removed}
