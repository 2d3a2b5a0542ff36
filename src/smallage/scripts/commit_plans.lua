-- Commits a batch of deaths under rules: what commit.lua does, and what the rules plan for each of them.
-- KEYS  1 lease  2 state  3 outbox  4 DLQ (burials twice over are removed)  5 audit log  6… job records and the index's sets; ARGV says
--       which by their numbers
-- ARGV  1 token  2 the cursor the batch was read after  3 the cursor from now on  4 how long a job is remembered (ms)
--       5 existing: '' (not now), 'counting' or 'done'  6 its tally, or its digest or ''  7 time of the digest (ms)
--       8 generation of the rules  9 lines kept in the audit log  10 number of deaths
--       11… for each death six: its entry; its job's record, or 0 without a job id; the event's time (ms); the event's
--       data as JSON up to the value of `deaths`, or '' for no event; its data after the value of `retries`; the
--       retries that its plan is for, or '' without a plan
--       then the spent, then the waiting (parts/plans.lua)
-- Gives {'OK', events in the outbox, {for each death of a job that is known already: its number (from 0), deaths, retries},
--       {numbers of those now announced as exhausted}, {numbers of those that were put back by somebody else},
--       the places of the deaths' events now written (parts/places.lua)}, or
--       {'STALE', deaths before it and retries for each death} if a plan is for another number of retries, or
--       {'FENCED'} or {'MOVED'}
-- One step, because a crash between any two of these writes would lose an event, an entry of the index or a count, or
--       write it twice.
if call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local state = call('HMGET', KEYS[2], 'cursor', 'seen', 'deaths', 'generation')
if state[1] ~= ARGV[2] or (tonumber(state[4] or '') or 0) ~= tonumber(ARGV[8]) then
  return {'MOVED'}
end
local outbox, dlq, log, most, remember = KEYS[3], KEYS[4], KEYS[5], ARGV[9], ARGV[4]
local missing = denied('zadd', KEYS[2], 0, 'x') or denied('xdel', dlq, '0-1')
if missing then
  return missing
end
-- An outbox of another type ends it here, before anything is counted.
local places = {last_place(outbox)}

local FIRST, EACH = 11, 6
local number = tonumber(ARGV[10])
local behind = FIRST + EACH * number

-- Jobs by the keys of their records, and of each death its job, or false without a job id.
local jobs, job_of = {}, {}
local stale = false
local counts = {'STALE'}
for n = 0, number - 1 do
  local at = FIRST + EACH * n
  local deaths, retries = 0, 0
  local place = ARGV[at + 1]
  if place == '0' then
    job_of[n] = false
  else
    local job = jobs[place]
    if not job then
      job = known_job(KEYS[tonumber(place)])
      jobs[place], job.before = job, job.deaths
    end
    job_of[n] = job
    deaths, retries = job.before, job.retries
    job.before = deaths + 1
  end
  local planned = ARGV[at + 5]
  if planned ~= '' and tonumber(planned) ~= retries then
    stale = true
  end
  counts[2 * n + 2], counts[2 * n + 3] = deaths, retries
end
if stale then
  return counts
end

local again, elsewhere, events = {}, {}, 0
local gone, twins, last = {}, {}, nil
for n = 0, number - 1 do
  local at = FIRST + EACH * n
  local entry, job = ARGV[at], job_of[n]
  local deaths, retries = 1, 0
  if job then
    deaths, retries = job.deaths + 1, job.retries
    job.deaths = deaths
  end
  local head = ARGV[at + 3]
  if head ~= '' then
    places[#places + 1] = call('XADD', outbox, '*', 'type', 'job.dead', 'at', ARGV[at + 2],
      'data', head .. deaths .. ',"retries":' .. retries .. ARGV[at + 4])
    events = events + 1
  end
  if job then
    local key = job.key
    if job.new and deaths == 1 then
      -- Most are like this: nothing is known of them yet.
      job.entries = entry
      put('HSET', key, 'deaths', '1', 'entries', entry)
    else
      if job.earlier ~= NEVER then
        last = last or last_id(dlq)
      end
      if job.earlier ~= NEVER and of_earlier_life(job.earlier, entry, last) then
        gone[entry] = true
        twins[#twins + 1] = {entry = entry, job = job}
      else
        if job.entries ~= '' and retries == job.seen then
          local left = false
          for other in string.gmatch(job.entries, '%S+') do
            left = left or other == entry or buried(dlq, other)
          end
          if not left then
            elsewhere[#elsewhere + 1] = n
          end
        end
        job.entries = with_entry(job.entries, entry, job.earlier)
      end
      job.seen = retries
      put('HSET', key, 'deaths', deaths, 'entries', job.entries, 'retries_seen', retries)
    end
    if deaths > 1 or retries > 0 then
      again[#again + 1] = n
      again[#again + 1] = deaths
      again[#again + 1] = retries
    end
    call('PEXPIRE', key, remember)
  end
end
local time = call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local entry_of = function(n) return ARGV[FIRST + EACH * n] end
local exhausted, waiting = announce_spent(behind, function(n) return job_of[n] end, entry_of, gone, outbox, log, most, now)
local added = wait_in_index(waiting, gone)
remove_twins(dlq, twins, log, most)
if ARGV[5] == 'done' and ARGV[6] ~= '' then
  call('XADD', outbox, '*', 'type', 'dlq.digest', 'at', ARGV[7], 'data', ARGV[6])
end
local function total(stored, more)
  return string.format('%.0f', (tonumber(stored or '') or 0) + more)
end
call('HSET', KEYS[2], 'cursor', ARGV[3], 'seen', total(state[2], number), 'deaths', total(state[3], events))
if added > 0 then
  call('HSET', KEYS[2], 'indexed', total(call('HGET', KEYS[2], 'indexed'), added))
end
if ARGV[5] == 'done' then
  call('HDEL', KEYS[2], 'existing_until', 'existing_tally')
elseif ARGV[5] == 'counting' then
  call('HSET', KEYS[2], 'existing_tally', ARGV[6])
end
return {'OK', call('XLEN', outbox), again, exhausted, elsewhere, table.concat(places, ' ')}
