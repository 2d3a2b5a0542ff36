-- Part of most scripts that look at the DLQ: entries in it, and those of a job as its record names them.

-- The id before all others: of a job that was never put back.
local NEVER = '0-0'

-- Whether a stream id comes before another. They are two 64-bit numbers, more than a Lua number holds: texts of digits
-- are compared. What is no id comes first.
local function before(a, b)
  local am, as = string.match(a, '^(%d+)%-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)%-(%d+)$')
  am, as, bm, bs = am or '0', as or '0', bm or '0', bs or '0'
  if am ~= bm then
    return #am < #bm or (#am == #bm and am < bm)
  end
  return #as < #bs or (#as == #bs and as < bs)
end

-- Whether an entry is still in the DLQ.
local function buried(dlq, id)
  local found = redis.pcall('XRANGE', dlq, id, id)
  return not found.err and #found > 0
end

-- The last id that a stream has ever given, or `none` where there is none, or where the key holds something else; NEVER
-- without a `none`.
local function last_id(stream, none)
  local info = redis.pcall('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      return info[i + 1]
    end
  end
  return none or NEVER
end

-- The last id that the DLQ had given when a job was last put back. Its record says so in `raised`, with the time and the
-- rule.
local function earlier_until(raised)
  return string.match(raised, '^%S+') or NEVER
end

-- Whether an entry was in the DLQ when its job was last put back. Then it tells of a life before that: a crash has buried the job twice, and one burial was read late. A DLQ that begins anew has smaller ids
-- than it had before: that proves nothing.
local function of_earlier_life(earlier, entry, last)
  return not before(earlier, entry) and not before(last, earlier)
end

-- The entries of a job with one more among them, in order, the newest eight; without those of earlier lives.
local function with_entry(entries, id, earlier)
  if entries == '' then
    return id
  end
  local list, at = {}, 1
  for known in string.gmatch(entries, '%S+') do
    if known == id then
      return entries
    end
    if before(earlier, known) then
      list[#list + 1] = known
      if before(known, id) then
        at = #list + 1
      end
    end
  end
  table.insert(list, at, id)
  return table.concat(list, ' ', math.max(#list - 7, 1))
end

-- What reading an entry costs, about as many bytes as it has; a field costs as much as a hundred of them.
local function weight(fields)
  local bytes = 50 * #fields
  for i = 1, #fields do
    bytes = bytes + #fields[i]
  end
  return bytes
end
