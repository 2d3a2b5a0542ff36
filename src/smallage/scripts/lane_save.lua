-- Saves the state of a delivery lane, if nobody has saved it since it was loaded.
-- KEYS  1 lease  2 lane
-- ARGV  1 token, or '' for a change by hand  2 the revision it was loaded at (0: never saved)  3 the state as JSON
--       4 how long an unused lane is remembered (ms)
-- Gives {'OK', revision} or {'FENCED'} or {'MOVED'}
-- One step, because a rewind by hand between a check and a save would be undone by it.
if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
-- What is no number was not written by us, and counts as never saved.
local revision = tonumber(redis.call('HGET', KEYS[2], 'revision') or '') or 0
if revision ~= tonumber(ARGV[2]) then
  return {'MOVED'}
end
revision = string.format('%.0f', revision + 1)
redis.call('HSET', KEYS[2], 'revision', revision, 'state', ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {'OK', revision}
