-- Extends the lease, if it is still the caller's.
-- KEYS  1 lease
-- ARGV  1 token  2 ttl (ms)
-- Gives {'OK', seconds, microseconds} or {'FENCED'}
-- One step, because between a check and an extension another replica could have taken the lease.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local time = redis.call('TIME')
return {'OK', time[1], time[2]}
