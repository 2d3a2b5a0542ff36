-- Part of commit_plans.lua and judge.lua: what both do with the plans of the rules.
-- The spent: how many, and for each five: number of the death or entry (from 0); the event's data as JSON; the rule;
-- the job's id; its task.
-- The waiting: the key of the index's pools; how many groups, and for each: key of the group's entries; key of the
-- pool's groups; pool; group; the first time an entry is due; how many entries, and for each its time and its id.

local KEYS, ARGV, tonumber, unpack = KEYS, ARGV, tonumber, unpack

-- What is known of a job. A record of another type under its name counts as none.
local function known_job(key)
  local found = pcall('HMGET', key, 'deaths', 'retries', 'entries', 'retries_seen', 'raised', 'exhausted')
  if found.err or not (found[1] or found[2] or found[3]) then
    return {key = key, new = true, deaths = 0, retries = 0, entries = '', seen = 0, earlier = NEVER, rule = ''}
  end
  local raised = found[5]
  return {
    key = key,
    deaths = tonumber(found[1] or '') or 0,
    retries = tonumber(found[2] or '') or 0,
    entries = found[3] or '',
    seen = tonumber(found[4] or '') or 0,
    earlier = raised and earlier_until(raised) or NEVER,
    rule = raised and string.match(raised, '^%S+ %S+ (.*)$') or '',
    exhausted = found[6],
  }
end

-- Takes entries of earlier lives of their jobs out of the DLQ: those jobs have been put back already.
local function remove_twins(dlq, twins, log, most)
  for i = 1, #twins do
    local entry, job = twins[i].entry, twins[i].job
    local found = pcall('XRANGE', dlq, entry, entry)
    local id, task = '', ''
    if not found.err and #found > 0 then
      local fields = found[1][2]
      for f = 1, #fields, 2 do
        if fields[f] == 'id' then
          id = fields[f + 1]
        elseif fields[f] == 'task' then
          task = fields[f + 1]
        end
      end
      audit(log, most, 'twin_removed', job.rule, entry, id, task, 'buried before the last retry')
      call('XDEL', dlq, entry)
    end
  end
end

-- Announces what is spent, of each job once. Gives the numbers of those announced, and where the list ends.
local function announce_spent(at, job_of, entry_of, gone, outbox, log, most, now)
  local announced = {}
  local last = at + 5 * tonumber(ARGV[at])
  for i = at + 1, last, 5 do
    local number, event, rule = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
    local job = job_of(number)
    if job and not job.exhausted and not gone[entry_of(number)] then
      call('XADD', outbox, '*', 'type', 'job.exhausted', 'at', now, 'data', event)
      put('HSET', job.key, 'exhausted', rule)
      job.exhausted = rule
      audit(log, most, 'exhausted', rule, entry_of(number), ARGV[i + 3], ARGV[i + 4], '')
      announced[#announced + 1] = number
    end
  end
  return announced, last + 1
end

-- Puts what waits into the index, but for entries that are gone. Gives how many are new there.
local function wait_in_index(at, gone)
  local pools, groups = KEYS[tonumber(ARGV[at])], tonumber(ARGV[at + 1])
  local all, added = next(gone) == nil, 0
  at = at + 2
  for _ = 1, groups do
    local first, last = at + 6, at + 5 + 2 * tonumber(ARGV[at + 5])
    local entries, new = KEYS[tonumber(ARGV[at])], nil
    if all then
      new = put('ZADD', entries, unpack(ARGV, first, last))
    else
      local members = {}
      for i = first, last, 2 do
        if not gone[ARGV[i + 1]] then
          members[#members + 1] = ARGV[i]
          members[#members + 1] = ARGV[i + 1]
        end
      end
      new = #members > 0 and put('ZADD', entries, unpack(members))
    end
    if new then
      added = added + new
      put('ZADD', KEYS[tonumber(ARGV[at + 1])], 'LT', ARGV[at + 4], ARGV[at + 3])
      put('ZADD', pools, 'LT', ARGV[at + 4], ARGV[at + 2])
    end
    at = last + 1
  end
  return added
end
