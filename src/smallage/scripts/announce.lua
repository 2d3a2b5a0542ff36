-- Appends an event of a leader to the outbox.
-- KEYS  1 lease  2 outbox
-- ARGV  1 token  2 the kind of event  3 its data as JSON
-- Gives {'OK'} or {'FENCED'}
-- One step, because a leader that has lost the lease must not speak any more.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
redis.call('XADD', KEYS[2], '*', 'type', ARGV[2], 'data', ARGV[3])
return {'OK'}
