-- Remembers up to where Prometheus has been shown the deaths that the outbox tells of.
-- KEYS  1 lease  2 state
-- ARGV  1 token  2 the place of the last death that is shown
-- Gives {'OK'} or {'FENCED'}
-- One step, because whoever leads next counts what lies behind this place: it may be moved only by who leads.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
redis.call('HSET', KEYS[2], 'shown', ARGV[2])
return {'OK'}
