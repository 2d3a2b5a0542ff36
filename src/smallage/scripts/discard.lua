-- Removes a part of the due index of rules that are no longer in force.
-- KEYS  1 lease  2 state  3 the old generation's pools  4 one of its pools, or the same as 3 if it has none
--       5… some groups of that pool
-- ARGV  1 token  2 the old generation  3 the pool's name, or '' if it has none  4… the groups' names
-- Gives {'OK', 1 if that generation is gone altogether, else 0} or {'FENCED'} or {'MOVED'}
-- One step, because a pool may only go when its last group has gone, and only a leader may write.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local generation = tonumber(redis.call('HGET', KEYS[2], 'generation') or '') or 0
if tonumber(ARGV[2]) >= generation then
  return {'MOVED'}
end
if ARGV[3] ~= '' then
  for i = 5, #KEYS do
    redis.call('UNLINK', KEYS[i])
    redis.call('ZREM', KEYS[4], ARGV[i - 1])
  end
  if #KEYS == 4 then
    -- Nothing is in it, or it is not what it should be.
    redis.call('UNLINK', KEYS[4])
  end
  if redis.call('EXISTS', KEYS[4]) == 0 then
    redis.call('ZREM', KEYS[3], ARGV[3])
  end
  if redis.call('EXISTS', KEYS[3]) == 1 then
    return {'OK', 0}
  end
end
redis.call('UNLINK', KEYS[3])
redis.call('HSET', KEYS[2], 'oldest_generation', string.format('%.0f', ARGV[2] + 1))
return {'OK', 1}
