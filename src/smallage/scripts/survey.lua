-- Looks at the DLQ and at how far it has been read, and settles what was taken away unread.
-- KEYS  1 lease  2 state  3 DLQ  4 flights  5 outbox
-- ARGV  1 token  2 the newest event that the caller knows to have been there, or ''
-- Gives {'OK', seconds, microseconds, length, entries added since the last survey of any leader, id of the first entry
--       or '', entries not read yet, entries found to have gone unread, retries in flight, the last id of the outbox or
--       '', 1 if that event is gone without having been trimmed else 0} or {'FENCED'}
-- One step, because a count of what is unread only holds at the moment the cursor is compared with the DLQ.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local time = redis.call('TIME')
-- A key of another type holds no flights.
local flights = redis.pcall('HLEN', KEYS[4])
flights = type(flights) == 'number' and flights or 0
local told = last_id(KEYS[5], '')
local lost = has_lost(KEYS[5], ARGV[2], told) and 1 or 0
if redis.call('EXISTS', KEYS[3]) == 0 then
  return {'OK', time[1], time[2], 0, 0, '', 0, 0, flights, told, lost}
end
local dlq = {}
local info = redis.call('XINFO', 'STREAM', KEYS[3])
for i = 1, #info, 2 do
  dlq[info[i]] = info[i + 1]
end
local added = dlq['entries-added']
local first = dlq['first-entry'] and dlq['first-entry'][1] or ''
local read = redis.call('HMGET', KEYS[2], 'cursor', 'seen', 'counted')
local seen = tonumber(read[2] or '0') or 0
-- A store that was restored counts anew; what it then holds was counted before.
local fresh = math.max(added - (tonumber(read[3] or '') or added), 0)
redis.call('HSET', KEYS[2], 'counted', string.format('%.0f', added))
local lag, unseen = math.max(added - seen, 0), 0
local unread = added ~= seen and read[1] and redis.call('XRANGE', KEYS[3], '(' .. read[1], '+', 'COUNT', 1)
if unread and #unread == 0 then
  -- Everything there is has been read: the rest was taken away before, or the store counts anew after a restore.
  unseen, lag = lag, 0
  redis.call('HSET', KEYS[2], 'seen', string.format('%.0f', added))
end
return {'OK', time[1], time[2], dlq['length'], fresh, first, lag, unseen, flights, told, lost}
