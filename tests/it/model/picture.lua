-- Everything there is, all at one moment. For a test's own server only: it names no keys.
-- ARGV  1 the last line of the audit log seen  2 the last event of the outbox seen
-- Gives for each key three: its name, its type, what it holds
local all = {}
local function after(id, key)
  return redis.call('XRANGE', key, '(' .. id, '+')
end
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local holds
  if kind == 'string' then
    holds = redis.call('GET', key)
  elseif kind == 'hash' then
    holds = redis.call('HGETALL', key)
  elseif kind == 'zset' then
    holds = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif string.sub(key, -13) == ':sexton:audit' then
    holds = after(ARGV[1], key)
  elseif string.sub(key, -21) == ':sexton:outbox:deaths' then
    holds = after(ARGV[2], key)
  else
    holds = redis.call('XRANGE', key, '-', '+')
  end
  all[#all + 1] = {key, kind, holds}
end
return all
