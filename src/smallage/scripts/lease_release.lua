-- Gives the lease up, if it is still the caller's.
-- KEYS  1 lease
-- ARGV  1 token
-- Gives {'OK'} or {'FENCED'}
-- One step, because between a check and a removal another replica could have taken the lease.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
redis.call('DEL', KEYS[1])
return {'OK'}
