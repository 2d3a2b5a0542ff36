-- Puts scheduled jobs that are due back on their queues.
--
-- One step, because several workers do this at the same time, and a job between the clock and its queue would be lost
-- if the worker died there.
--
-- KEYS[1]  the clock: scheduled ids by the millisecond they are due
-- ARGV[1]  the prefix of the keys that hold their records, one hash each (undeclared keys: for a single server only)
-- ARGV[2]  how many to move at most
-- Returns how many were due.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[2])

for _, id in ipairs(due) do
  local hash = ARGV[1] .. id
  local queue = redis.call('HGET', hash, '_stream')
  redis.call('HDEL', hash, '_stream')
  local record = redis.call('HGETALL', hash)
  if queue and #record > 0 then
    redis.call('XADD', queue, '*', unpack(record))
  end
  redis.call('DEL', hash)
  redis.call('ZREM', KEYS[1], id)
end

return #due
