-- Writes a step of judging: entries from before the rules, with what the rules plan for them.
-- KEYS  1 lease  2 state  3 outbox  4 DLQ (burials twice over are removed)  5 audit log  6… job records and the index's sets; ARGV says
--       which by their numbers
-- ARGV  1 token  2 the entries were read after this  3 judged from now on  4 how long a job is remembered (ms)
--       5 generation of the rules  6 lines kept in the audit log  7 number of entries
--       8… for each entry three: its id; its job's record, or 0 without a job id; the retries that its plan is for, or
--       '' without a plan
--       then the spent, then the waiting (parts/plans.lua)
-- Gives {'OK', events in the outbox, {numbers (from 0) of those now announced as exhausted}}, or {'STALE', deaths and
--       retries for each entry} if a plan is for another number of retries, or {'FENCED'} or {'MOVED'}
-- One step, because an entry that is retried in between would come back into the index, and because a crash would leave
--       entries unjudged or their exhaustion announced twice.
if call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local state = call('HMGET', KEYS[2], 'judged', 'generation', 'indexed')
if (state[1] or '0-0') ~= ARGV[2] or (tonumber(state[2] or '') or 0) ~= tonumber(ARGV[5]) then
  return {'MOVED'}
end
local outbox, dlq, log, most, remember = KEYS[3], KEYS[4], KEYS[5], ARGV[6], ARGV[4]
local missing = denied('zadd', KEYS[2], 0, 'x') or denied('xdel', dlq, '0-1')
if missing then
  return missing
end
call('XLEN', outbox)

local FIRST, EACH = 8, 3
local number = tonumber(ARGV[7])
local behind = FIRST + EACH * number

local jobs, gone, twins = {}, {}, {}
local last = last_id(dlq)
local stale, counts = false, {'STALE'}
for n = 0, number - 1 do
  local at = FIRST + EACH * n
  local deaths, retries = 0, 0
  local place = tonumber(ARGV[at + 1])
  if not buried(dlq, ARGV[at]) then
    gone[ARGV[at]] = true
  elseif place > 0 then
    local key = KEYS[place]
    local job = jobs[key] or known_job(key)
    jobs[key] = job
    deaths, retries = job.deaths, job.retries
    if of_earlier_life(job.earlier, ARGV[at], last) then
      gone[ARGV[at]] = true
      twins[#twins + 1] = {entry = ARGV[at], job = job}
    elseif ARGV[at + 2] ~= '' and tonumber(ARGV[at + 2]) ~= retries then
      stale = true
    end
  end
  counts[2 * n + 2], counts[2 * n + 3] = deaths, retries
end
if stale then
  return counts
end

-- The job of an entry that is still there, and stays.
local function job_of(n)
  local at = FIRST + EACH * n
  local place = tonumber(ARGV[at + 1])
  return place > 0 and not gone[ARGV[at]] and jobs[KEYS[place]]
end

for n = 0, number - 1 do
  local entry, job = ARGV[FIRST + EACH * n], job_of(n)
  if job then
    local entries = with_entry(job.entries, entry, job.earlier)
    if entries ~= job.entries then
      job.entries = entries
      put('HSET', job.key, 'entries', entries)
      if job.new then
        call('PEXPIRE', job.key, remember)
      end
    end
  end
end
local time = call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local entry_of = function(n) return ARGV[FIRST + EACH * n] end
local exhausted, waiting = announce_spent(behind, job_of, entry_of, gone, outbox, log, most, now)
remove_twins(dlq, twins, log, most)
local indexed = (tonumber(state[3] or '') or 0) + wait_in_index(waiting, gone)
call('HSET', KEYS[2], 'judged', ARGV[3], 'indexed', string.format('%.0f', indexed))
return {'OK', call('XLEN', outbox), exhausted}
