-- Gives the lease up, if it is still the caller's, and wakes those who wait for that.
-- KEYS  1 lease  2 handover
-- ARGV  1 token  2 id of the word that it is given up
-- Gives {'OK'} or {'FENCED'}
-- One step, because between a check and a removal another replica could have taken the lease, and nobody must be woken
-- for a lease that is still held.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
redis.call('DEL', KEYS[1])
-- Whatever is there: its ids could be in the way. Where the word cannot be written, the others notice by themselves.
redis.call('DEL', KEYS[2])
redis.pcall('XADD', KEYS[2], ARGV[2], 'released', ARGV[1])
return {'OK'}
