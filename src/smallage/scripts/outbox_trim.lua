-- Removes old events from an outbox lane.
-- KEYS  1 lease  2 outbox
-- ARGV  1 token  2 the first id to keep  3 how many to remove at most, or '' for all before that id
-- Gives {'OK', removed} or {'FENCED'}
-- One step, because a leader that has lost the lease must not remove what its successor still needs.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
if ARGV[3] == '' then
  return {'OK', redis.call('XTRIM', KEYS[2], 'MINID', ARGV[2])}
end
return {'OK', redis.call('XTRIM', KEYS[2], 'MINID', '~', ARGV[2], 'LIMIT', ARGV[3])}
