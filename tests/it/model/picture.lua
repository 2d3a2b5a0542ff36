-- Everything there is, all at one moment. For a test's own server only: it names no keys.
-- ARGV  1 the last line of the audit log seen  2 the last event of the outbox seen
-- Gives for each key two: its name, what it holds
local all = {}
local function after(id, key)
  return redis.call('XRANGE', key, '(' .. id, '+')
end
local kinds = {dlq = 'stream', q = 'stream', sched = 'zset', dedup = 'string'}
local own = {state = 'hash', flights = 'hash', job = 'hash', due = 'zset', held = 'zset', learnt = 'string',
  lease = 'string', raised = 'string', audit = 'stream', outbox = 'stream'}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local _, _, first, second = string.find(key, '^{lrs}:(%a+):?(%a*)')
  local kind = first == 'sexton' and own[second] or kinds[first]
  local holds
  if kind == 'string' then
    holds = redis.call('GET', key)
  elseif kind == 'hash' then
    holds = redis.call('HGETALL', key)
  elseif kind == 'zset' then
    holds = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif second == 'audit' then
    holds = after(ARGV[1], key)
  elseif second == 'outbox' then
    holds = after(ARGV[2], key)
  else
    holds = redis.call('XRANGE', key, '-', '+')
  end
  all[#all + 1] = {key, holds}
end
return all
