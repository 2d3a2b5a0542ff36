-- Sets when a pool and some of its groups are looked at again.
-- KEYS  1 lease  2 the index's pools  3 the pool's groups  4… the entries of the groups looked at
-- ARGV  1 token  2 the pool  3 not before this (ms), or '' for when its first group is due  4… for each group two: its
--       name; not before this (ms), or '' for when its first entry is due
-- Gives {'OK'} or {'FENCED'}
-- One step, because an entry that is added in between would not be looked at when it is due.
local call = redis.call
if call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end

-- The first time in a set, but not before another; nothing for an empty set, or for what is none.
local function first(key, earliest)
  local found = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if found.err or #found == 0 then
    return nil
  end
  return string.format('%.0f', math.max(tonumber(found[2]), tonumber(earliest) or 0))
end

-- Sets a member's time, or removes it; a set that is none was not written by Sexton, and makes room.
local function set(key, member, time)
  if type(redis.pcall('ZCARD', key)) ~= 'number' then
    call('DEL', key)
  end
  if time then
    call('ZADD', key, time, member)
  else
    call('ZREM', key, member)
  end
end

for i = 4, #KEYS do
  local at = 4 + 2 * (i - 4)
  set(KEYS[3], ARGV[at], first(KEYS[i], ARGV[at + 1]))
end
set(KEYS[2], ARGV[2], first(KEYS[3], ARGV[3]))
return {'OK'}
