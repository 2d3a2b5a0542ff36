-- Takes the lease if it is free, or anew if it is the caller's own.
-- KEYS  1 lease  2 state  3 handover
-- ARGV  1 holder  2 ttl (ms)  3 highest epoch the caller knows of
-- Gives {'OK', epoch, seconds, microseconds} or {'HELD', token, seconds, microseconds}
-- One step, because the epoch must rise with every change of hands, and two callers must not both find it free.
local time = redis.call('TIME')
local held = redis.call('GET', KEYS[1])
local holder = held and string.match(held, '^%d+:(.*)$')
-- A lease of ours always runs out: one that would not, or that has another form, is nobody's.
if holder and holder ~= ARGV[1] and redis.call('PTTL', KEYS[1]) >= 0 then
  return {'HELD', held, time[1], time[2]}
end
local stored = tonumber(redis.call('HGET', KEYS[2], 'epoch') or '0') or 0
local epoch = string.format('%.0f', math.max(stored, tonumber(ARGV[3])) + 1)
redis.call('HSET', KEYS[2], 'epoch', epoch)
redis.call('SET', KEYS[1], epoch .. ':' .. ARGV[1], 'PX', ARGV[2])
-- It is no longer to be had, so nobody is to be woken.
redis.call('DEL', KEYS[3])
return {'OK', epoch, time[1], time[2]}
