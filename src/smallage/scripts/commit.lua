-- Commits a batch of deaths: job records, outbox, counters and cursor.
-- KEYS  1 lease  2 state  3 outbox  4… one job record for each death that has a job id, in order
-- ARGV  1 token  2 the cursor the batch was read after  3 the cursor from now on  4 how long a job is remembered (ms)
--       5 existing: '' (not now), 'counting' or 'done'  6 its tally, or its digest or ''  7 time of the digest (ms)
--       8… for each death four: '1' if it has a job id else '0'; the event's time (ms); the event's data as JSON up to
--       the value of `deaths`, or '' for no event; its data after the value of `retries`
-- Gives {'OK', events in the outbox, then for each death of a job that died before: number of the death in the batch
--       (from 0), deaths, retries} or {'FENCED'} or {'MOVED'}
-- One step, because a crash between any two of these writes would lose an event or write it twice.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
if redis.call('HGET', KEYS[2], 'cursor') ~= ARGV[2] then
  return {'MOVED'}
end
local remember = ARGV[4]
local outbox = KEYS[3]
local call = redis.call
local again = {}
local deaths_in_batch, events, written = 0, 0, false
local next_job = 4
for at = 8, #ARGV, 4 do
  -- Without a job id nothing can be known of earlier deaths: this is one.
  local deaths, retries = 1, 0
  if ARGV[at] == '1' then
    local job = KEYS[next_job]
    next_job = next_job + 1
    -- A record of another type under this name must not stop the batch: count the job as unknown.
    local counted = redis.pcall('HINCRBY', job, 'deaths', 1)
    if type(counted) == 'number' then
      deaths, written = counted, true
      call('PEXPIRE', job, remember)
      if deaths > 1 then
        retries = tonumber(call('HGET', job, 'retries') or '0') or 0
        again[#again + 1] = deaths_in_batch
        again[#again + 1] = deaths
        again[#again + 1] = retries
      end
    elseif not written and not string.find(counted.err, 'WRONGTYPE', 1, true) then
      -- Nothing is written yet, and this concerns every write (out of memory, rights): it ends here.
      return counted
    end
  end
  if ARGV[at + 2] ~= '' then
    call('XADD', outbox, '*', 'type', 'job.dead', 'at', ARGV[at + 1],
      'data', ARGV[at + 2] .. deaths .. ',"retries":' .. retries .. ARGV[at + 3])
    events, written = events + 1, true
  end
  deaths_in_batch = deaths_in_batch + 1
end
if ARGV[5] == 'done' and ARGV[6] ~= '' then
  call('XADD', outbox, '*', 'type', 'dlq.digest', 'at', ARGV[7], 'data', ARGV[6])
end
call('HSET', KEYS[2], 'cursor', ARGV[3])
call('HINCRBY', KEYS[2], 'seen', deaths_in_batch)
call('HINCRBY', KEYS[2], 'deaths', events)
if ARGV[5] == 'done' then
  call('HDEL', KEYS[2], 'existing_until', 'existing_tally')
elseif ARGV[5] == 'counting' then
  call('HSET', KEYS[2], 'existing_tally', ARGV[6])
end
local reply = {'OK', call('XLEN', outbox)}
for i = 1, #again do
  reply[i + 2] = again[i]
end
return reply
