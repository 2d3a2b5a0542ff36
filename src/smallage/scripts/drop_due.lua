-- Takes entries out of the due index that the rules do not want there.
-- KEYS  1 lease  2 state  3… the entries of groups
-- ARGV  1 token  2 generation of the rules  3… for each entry two: the number of its group's key; its id
-- Gives {'OK', removed} or {'FENCED'} or {'MOVED'}
-- One step, because the number of entries in the index must stay right, and only a leader may write.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local state = redis.call('HMGET', KEYS[2], 'generation', 'indexed')
if (tonumber(state[1] or '') or 0) ~= tonumber(ARGV[2]) then
  return {'MOVED'}
end
local removed = 0
for i = 3, #ARGV, 2 do
  local one = redis.pcall('ZREM', KEYS[tonumber(ARGV[i])], ARGV[i + 1])
  if type(one) == 'number' then
    removed = removed + one
  elseif not string.find(one.err, 'WRONGTYPE', 1, true) then
    return one
  end
end
local indexed = math.max((tonumber(state[2] or '') or 0) - removed, 0)
redis.call('HSET', KEYS[2], 'indexed', string.format('%.0f', indexed))
return {'OK', removed}
