-- Commits a batch of deaths where there are no rules: job records, outbox, counters and cursor.
-- KEYS  1 lease  2 state  3 outbox  4… one job record for each death that has a job id, in order
-- ARGV  1 token  2 the cursor the batch was read after  3 the cursor from now on  4 how long a job is remembered (ms)
--       5 existing: '' (not now), 'counting' or 'done'  6 its tally, or its digest or ''  7 time of the digest (ms)
--       8… for each death five: '1' if it has a job id else '0'; the event's time (ms); the event's data as JSON up to
--       the value of `deaths`, or '' for no event; its data after the value of `retries`; its entry
-- Gives {'OK', events in the outbox, the places of the deaths' events now written (parts/places.lua), then for each death
--       of a job that died before: number of the death in the batch (from 0), deaths, retries} or {'FENCED'} or
--       {'MOVED'} (also if there are rules by now)
-- One step, because a crash between any two of these writes would lose an event or write it twice.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local state = redis.call('HMGET', KEYS[2], 'cursor', 'seen', 'deaths', 'generation')
if state[1] ~= ARGV[2] or (state[4] and (tonumber(state[4]) or 0) ~= 0) then
  return {'MOVED'}
end
local remember = ARGV[4]
local outbox = KEYS[3]
local call, pcall = redis.call, redis.pcall
local again = {}
local number, events, written = 0, 0, false
local places = {last_place(outbox)}
local next_job = 4

local function append(at, deaths, retries)
  places[#places + 1] = call('XADD', outbox, '*', 'type', 'job.dead', 'at', ARGV[at + 1],
    'data', ARGV[at + 2] .. deaths .. ',"retries":' .. retries .. ARGV[at + 3])
  events, written = events + 1, true
end

for at = 8, #ARGV, 5 do
  -- Without a job id nothing can be known of earlier deaths: this is one.
  local deaths, retries = 1, 0
  local job
  if ARGV[at] == '1' then
    job = KEYS[next_job]
    next_job = next_job + 1
  end
  local announce = ARGV[at + 2] ~= ''
  if announce and not written then
    -- The first write is the one that a lack of memory or of rights refuses; what comes before it only reads. So
    -- nothing is counted by a commit that fails, however often it is tried.
    local known = job and pcall('HMGET', job, 'deaths', 'retries') or {}
    deaths = (tonumber(known[1] or '') or 0) + 1
    retries = tonumber(known[2] or '') or 0
    append(at, deaths, retries)
    announce = false
  end
  if job then
    -- A record of another type under this name must not stop the batch: such a job counts as unknown.
    local counted = pcall('HINCRBY', job, 'deaths', 1)
    if type(counted) == 'number' then
      deaths, written = counted, true
      call('PEXPIRE', job, remember)
      if deaths > 1 then
        local known = call('HMGET', job, 'retries', 'raised', 'entries')
        retries = tonumber(known[1] or '') or 0
        if known[2] then
          -- A person has put it back: only by its entries this death can be told from those before.
          call('HSET', job, 'entries', with_entry(known[3] or '', ARGV[at + 4], earlier_until(known[2])))
        end
        again[#again + 1] = number
        again[#again + 1] = deaths
        again[#again + 1] = retries
      end
    elseif not written and not string.find(counted.err, 'WRONGTYPE', 1, true) then
      -- Nothing is written yet, and this concerns every write (out of memory, rights): it ends here.
      return counted
    end
  end
  if announce then
    append(at, deaths, retries)
  end
  number = number + 1
end
if ARGV[5] == 'done' and ARGV[6] ~= '' then
  call('XADD', outbox, '*', 'type', 'dlq.digest', 'at', ARGV[7], 'data', ARGV[6])
end
local function total(stored, more)
  return string.format('%.0f', (tonumber(stored or '') or 0) + more)
end
call('HSET', KEYS[2], 'cursor', ARGV[3], 'seen', total(state[2], number), 'deaths', total(state[3], events))
if ARGV[5] == 'done' then
  call('HDEL', KEYS[2], 'existing_until', 'existing_tally')
elseif ARGV[5] == 'counting' then
  call('HSET', KEYS[2], 'existing_tally', ARGV[6])
end
local reply = {'OK', call('XLEN', outbox), table.concat(places, ' ')}
for i = 1, #again do
  reply[i + 3] = again[i]
end
return reply
