-- Saves how far a bulk operation has come, if nobody has saved it since it was read.
-- KEYS  1 lease  2 what is known of the operation
-- ARGV  1 token, or '' for a change by hand  2 the revision it was read at  3 how long it is kept (ms)  4… names and values
-- Gives {'OK', revision} or {'FENCED'} or {'MOVED'} (also if there is no such operation)
-- One step, because a leader that goes on must not undo that a person has cancelled it.
if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local revision = redis.pcall('HGET', KEYS[2], 'revision')
if type(revision) ~= 'string' or tonumber(revision) ~= tonumber(ARGV[2]) then
  return {'MOVED'}
end
revision = string.format('%.0f', revision + 1)
redis.call('HSET', KEYS[2], 'revision', revision, unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'OK', revision}
