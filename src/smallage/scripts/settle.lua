-- Writes what has become of retries: flights, events, audit lines, and what was learnt.
-- KEYS  1 lease  2 flights  3 outbox  4 audit log  5 groups on hold  6… what is learnt, and our dedup claims; ARGV says
--       which by their numbers
-- ARGV  1 token  2 lines kept in the audit log  3 number of flights
--       4… for each flight eight: its job's id; the entry that was retried; the verdict or ''; the flight as JSON from
--       now on, or '' if it has ended; the data of `job.recovered` as JSON or ''; the rule; the task; our dedup claim,
--       or 0
--       then for each lesson five: the key of what is learnt; it, or '' to forget it; until when it is kept (ms); the
--       group's name among those on hold, or '' for a pool; until when (ms), or '' if it is not
-- Gives {'OK', number of flights that were not as they were known, and stay} or {'FENCED'}
-- One step, because a verdict must count once: with its event, its audit line, and in what is learnt from it.
if call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local flights, outbox, log, hold = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local most = ARGV[2]
-- Nothing is kept for longer than this, whatever a lesson says: ten years.
local LONGEST_MS = 315360000000
local FIRST, EACH = 4, 8
local behind = FIRST + EACH * tonumber(ARGV[3])

local skipped = 0
local changed, ended, verdicts = {}, {}, {}
for at = FIRST, behind - 1, EACH do
  local job, verdict, json = ARGV[at], ARGV[at + 2], ARGV[at + 3]
  local stored = pcall('HGET', flights, job)
  local entry, times, failing = string.match(type(stored) == 'string' and stored or '', '^(%S+) (%S+ %S+ %S+) ([01]) ')
  if entry ~= ARGV[at + 1] then
    skipped = skipped + 1
  else
    if verdict == 'failing' then
      -- It may have been said already, and the answer was lost.
      verdict, failing = failing == '1' and '' or verdict, '1'
    end
    if json == '' then
      ended[#ended + 1] = job
    else
      changed[#changed + 1] = job
      changed[#changed + 1] = entry .. ' ' .. times .. ' ' .. failing .. ' ' .. json
    end
    if verdict ~= '' then
      verdicts[#verdicts + 1] = {at, verdict}
    end
  end
end

if #verdicts > 0 or behind < #ARGV then
  local missing = denied('xadd', outbox, '*', 'x', 'x') or denied('hdel', flights, 'x') or denied('set', outbox, 'x')
    or denied('del', outbox) or denied('zadd', hold, 0, 'x') or denied('zrem', hold, 'x') or denied('zremrangebyscore', hold, 0, 0)
  if missing then
    return missing
  end
  call('XLEN', outbox)
end
-- Events first: they need memory, and nothing else is written if there is none.
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #verdicts do
  local at = verdicts[i][1]
  if ARGV[at + 4] ~= '' then
    call('XADD', outbox, '*', 'type', 'job.recovered', 'at', string.format('%.0f', now), 'data', ARGV[at + 4])
  end
end
put_all('HSET', flights, changed)
if behind < #ARGV then
  -- Holds that are over are nobody's business any more.
  pcall('ZREMRANGEBYSCORE', hold, '-inf', string.format('%.0f', now))
end
for at = behind, #ARGV, 5 do
  local key, left, member = KEYS[tonumber(ARGV[at])], tonumber(ARGV[at + 2]) - now, ARGV[at + 3]
  if ARGV[at + 1] == '' or left <= 0 then
    call('DEL', key)
  else
    call('SET', key, ARGV[at + 1], 'PX', string.format('%.0f', math.min(left, LONGEST_MS)))
  end
  if member ~= '' and ARGV[at + 4] == '' then
    pcall('ZREM', hold, member)
  elseif member ~= '' then
    put('ZADD', hold, ARGV[at + 4], member)
  end
end
for i = 1, #verdicts do
  local at, verdict = verdicts[i][1], verdicts[i][2]
  audit(log, most, verdict, ARGV[at + 5], ARGV[at + 1], ARGV[at], ARGV[at + 6], '')
  local ours = KEYS[tonumber(ARGV[at + 7])]
  if ours and ARGV[at + 3] == '' and pcall('GET', ours) == ARGV[at] then
    call('DEL', ours)
  end
end
put_all('HDEL', flights, ended)
return {'OK', skipped}
