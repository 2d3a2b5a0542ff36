-- Puts jobs back on their queues, each if everything still allows it: what rules have decided, or what a person wants.
-- By hand no lease is needed, no age, no allowance and no room on the queue, and the job gets a fresh allowance.
-- KEYS  1 lease  2 state  3 DLQ (entries are removed)  4 flights  5 outbox  6 audit log  7… the job's record of each
--       retry, in order; then queue streams (entries are added), groups' entries, dedup claims (smallage's; a job's own
--       is freed) and our claims; ARGV says which by their numbers
-- ARGV  1 token, or '' by hand  2 generation of the rules  3 how long a job is remembered (ms)  4 lines kept in the
--       audit log  5 by hand: the note  6 the operation that it is a part of, or ''  7 what is known of that, or 0
--       8 flights of which there are so many that no further one is followed
--       9 number of terms, and for each seven: the queue stream, or 0 if it is foreign; the group's entries, or 0; the
--       rule, or who it is; the task; the most retries granted; the queue's longest length; how long a verdict is waited
--       for (ms)
--       then the number of jobs with a dedup key, and for each four: number of the retry (from 1); the dedup key; its
--       claim; our claim
--       then for each retry seven: its entry; its job's id; the number of its terms; the retries it is planned for; not
--       before this (ms); the flight as JSON; the data of `job.retried` as JSON
-- Gives {'OK', seconds, microseconds, for each retry the id of its new queue entry, or the name of why it was refused}
--       (by hand for fewer, if they were so large that it has taken long) or {'FENCED'} or {'MOVED'} (by hand: the
--       operation does not run any more)
-- One step, because a crash between any two of these writes would lose the job, run it twice, or forget that it was
--       retried.
-- What one retry costs is counted in microseconds here: names are local, and what is the same for many is made once.
local KEYS, ARGV, tonumber, type, unpack = KEYS, ARGV, tonumber, type, unpack
local find, format, gmatch, match, sub = string.find, string.format, string.gmatch, string.match, string.sub

local by_hand = ARGV[1] == ''
local operation = KEYS[tonumber(ARGV[7])]
if by_hand then
  if not still_runs(operation) then
    return {'MOVED'}
  end
elseif call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
elseif (tonumber(call('HGET', KEYS[2], 'generation') or '') or 0) ~= tonumber(ARGV[2]) then
  return {'MOVED'}
end
local dlq, flights, outbox, log = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local remember, most, note, part_of = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local missing = denied('xadd', outbox, '*', 'x', 'x') or denied('hset', flights, 'x', 'x')
  or denied('xdel', dlq, '0-1') or denied('zadd', flights, 0, 'x') or denied('zrem', flights, 'x')
  or denied('pexpire', flights, 1) or denied('del', flights) or denied('set', flights, 'x')
  or denied('hdel', flights, 'x') or operation and denied('hincrby', operation, 'x', 1)
if missing then
  return missing
end
-- An outbox of another type ends it here, before anything is written.
call('XLEN', outbox)

-- A record with more fields than this is no job, and more than a script can pass on.
local MOST_FIELDS = 2000
-- The attempt of a job with a dedup key: if it fails it is buried at once, for smallage would drop its next attempt.
local LAST_ATTEMPT = '1000000'
local QUEUE_GONE_MS, QUEUE_TOO_LONG_MS, IN_FLIGHT_MS, SUPERSEDED_MS = 60000, 5000, 5000, 60000
local CLAIMED_LEAST_MS, CLAIMED_MOST_MS = 1000, 60000
-- A job whose entry is younger than this is remembered for long enough since its death.
local YOUNG_MS = remember / 2

local function text(number)
  return format('%.0f', number)
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_text, old = text(now), now - YOUNG_MS
-- Entries up to here are of lives before these retries.
local last = last_id(dlq)

local at = 10
local terms = {}
for n = 1, tonumber(ARGV[9]) do
  local rule, within = ARGV[at + 2], ARGV[at + 6]
  terms[n] = {
    stream = KEYS[tonumber(ARGV[at])],
    group = KEYS[tonumber(ARGV[at + 1])],
    rule = rule,
    task = ARGV[at + 3],
    most = tonumber(ARGV[at + 4]),
    longest = tonumber(ARGV[at + 5]),
    within = within,
    -- What a job's record says of its last retry, and a flight's beginning.
    raised = last .. ' ' .. now_text .. ' ' .. rule,
    times = ' ' .. now_text .. ' ' .. text(now + within) .. ' 0 ',
  }
  at = at + 7
end
local dedups = {}
local deduped = tonumber(ARGV[at])
at = at + 1
for _ = 1, deduped do
  local claims = {claim = KEYS[tonumber(ARGV[at + 2])], ours = KEYS[tonumber(ARGV[at + 3])], key = ARGV[at + 1]}
  dedups[tonumber(ARGV[at])] = claims
  at = at + 4
end
local FIRST, EACH, RECORDS = at, 7, 6

local ids = {}
for i = FIRST + 1, #ARGV, EACH do
  ids[#ids + 1] = ARGV[i]
end
local flying = pcall('HMGET', flights, unpack(ids))
if flying.err then
  flying = {}
end

-- By hand: whether somebody leads, and so follows what is in flight; how many more flights there may be (each is looked
-- at several times a second); and whether anybody is told. Who has never led here tells nobody, nor clears away what is
-- to be told.
local led, room, told = true, math.huge, true
if by_hand then
  local known = pcall('HLEN', flights)
  led = pcall('GET', KEYS[1])
  room = tonumber(ARGV[8]) - (type(known) == 'number' and known or 0)
  told = pcall('HGET', KEYS[2], 'uid')
  told = type(told) == 'string' and told ~= ''
end

-- By queue stream its length, or false where there is none.
local queues = {}
local function length_of(stream)
  local length = queues[stream]
  if length == nil then
    length = pcall('XLEN', stream)
    if type(length) ~= 'number' or (length == 0 and call('EXISTS', stream) == 0) then
      length = false
    end
    queues[stream] = length
  end
  return length
end

-- How long a key that holds another value than this is in the way; nothing if it is not.
local function held_by_another(key, value)
  local held = pcall('GET', key)
  if not held or held == value then
    return nil
  end
  local left = call('PTTL', key)
  if left < 0 then
    return CLAIMED_MOST_MS
  end
  return math.min(math.max(left, CLAIMED_LEAST_MS), CLAIMED_MOST_MS)
end

-- Fields that smallage writes: those that matter here, those of a burial, and the others.
local OTHER, ID, DEDUP, ATTEMPT, SOURCE, BURIAL = 1, 2, 3, 4, 5, 6
local FIELDS = {
  v = OTHER, task = OTHER, payload = OTHER, payload_ref = OTHER, enqueued_at = OTHER, traceparent = OTHER,
  tracestate = OTHER, result_ttl_ms = OTHER, history = OTHER, id = ID, dedup = DEDUP, attempt = ATTEMPT,
  dlq_source = SOURCE, dlq_reason = BURIAL, dlq_detail = BURIAL, dlq_deliveries = BURIAL, dlq_at = BURIAL,
}

-- Makes of a record's fields those that go on the queue: without the burial's, and with a new attempt. Gives how many
-- values are left, or nothing if it is not this job's record or cannot be put back.
local function revive(fields, job, stream, dedup)
  if #fields > 2 * MOST_FIELDS then
    return nil
  end
  local attempt = dedup and LAST_ATTEMPT or '0'
  local id, key, source, attempted
  local kept = 0
  for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    local kind = FIELDS[name] or (sub(name, 1, 4) == 'dlq_' and BURIAL or OTHER)
    if kind < SOURCE then
      -- Of a field that is there twice the last counts, as it does for smallage's workers.
      if kind == ID then
        id = value
      elseif kind == DEDUP then
        key = value
      elseif kind == ATTEMPT then
        value, attempted = attempt, true
      end
      fields[kept + 1], fields[kept + 2] = name, value
      kept = kept + 2
    elseif kind == SOURCE then
      source = value
    end
  end
  if id ~= job or job == '' or source ~= stream or key ~= dedup then
    return nil
  end
  if not attempted then
    fields[kept + 1], fields[kept + 2] = 'attempt', attempt
    kept = kept + 2
  end
  return kept
end

-- Whether a flight has ended although nobody has said so: a person can retry where nobody leads and follows it. It has
-- if the job has died since, or if no verdict is waited for any more, and if it is not where it was put.
local function has_landed(flight, entry, earlier, stream)
  local place, confirm_by = match(flight, '^%S+ (%S+) %S+ (%d+) ')
  if led or not place or buried(stream, place) then
    return false
  end
  return before(earlier, entry) or now > tonumber(confirm_by)
end

-- Job ids put back in this step; entries removed; by group what leaves the index, and what waits there until when.
local sent, removed, removals, dropped, postponed = {}, {}, {}, {}, {}
local in_flight, landed = {}, {}
local written = false
-- By hand: bytes and fields that were read. More than this is left for another step.
local work, MOST_WORK = 0, 2000000

local function append(lists, key, value)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  list[#list + 1] = value
end

local function remove(entry)
  removed[entry] = true
  removals[#removals + 1] = entry
end

-- Decides about one retry and makes it. Gives the new queue entry's id; or nothing, a refusal, and when it may have
-- passed ('' for any time, nothing for never).
local function raise(n, at, was_flying)
  local entry, job_id, record, term = ARGV[at], ARGV[at + 1], KEYS[RECORDS + n], terms[tonumber(ARGV[at + 2])]
  local stream, dedup = term.stream, dedups[n]
  if removed[entry] then
    return nil, 'entry_gone'
  end
  if was_flying and not by_hand or sent[job_id] then
    return nil, 'in_flight', now + IN_FLIGHT_MS
  end
  local found = pcall('XRANGE', dlq, entry, entry)
  if found.err or #found == 0 then
    return nil, 'entry_gone'
  end
  if not stream then
    return nil, 'foreign_stream'
  end
  local fields = found[1][2]
  if by_hand then
    work = work + weight(fields)
  end
  local kept = revive(fields, job_id, stream, dedup and dedup.key)
  local job = pcall('HMGET', record, 'retries', 'entries', 'raised', 'exhausted', 'deaths')
  -- Where a job's retries cannot be counted, it is not retried.
  if not kept or job.err then
    return nil, 'malformed'
  end
  local retries = tonumber(job[1] or '') or 0
  local earlier = job[3] and earlier_until(job[3])
  if by_hand then
    if was_flying and not has_landed(was_flying, entry, earlier or NEVER, stream) then
      return nil, 'in_flight'
    end
  elseif now < tonumber(ARGV[at + 4]) then
    return nil, 'too_young', ARGV[at + 4]
  elseif retries ~= tonumber(ARGV[at + 3]) then
    return nil, 'stale', ''
  elseif retries >= term.most then
    return nil, 'allowance_spent'
  end
  if earlier and of_earlier_life(earlier, entry, last) then
    local line = audit(log, most, 'twin_removed', term.rule, entry, job_id, term.task, 'buried before the last retry')
    if type(line) == 'table' and not written and not find(line.err, 'WRONGTYPE', 1, true) then
      return line
    end
    written = true
    remove(entry)
    return nil, 'superseded'
  end
  local twins
  if job[2] and job[2] ~= entry then
    twins = {}
    for other in gmatch(job[2], '%S+') do
      if other ~= entry and not removed[other] and buried(dlq, other) then
        if before(entry, other) then
          -- It goes when the newer one is put back; should a person remove that, its own turn comes.
          return nil, 'superseded', now + SUPERSEDED_MS
        end
        twins[#twins + 1] = other
      end
    end
  end
  local length = length_of(stream)
  if not length then
    return nil, 'queue_gone', now + QUEUE_GONE_MS
  end
  if length >= term.longest and not by_hand then
    return nil, 'queue_too_long', now + QUEUE_TOO_LONG_MS
  end
  local wait = dedup and (held_by_another(dedup.claim, job_id) or held_by_another(dedup.ours, job_id))
  if wait then
    return nil, 'dedup_claimed', now + wait
  end

  local id = pcall('XADD', stream, 'NOMKSTREAM', '*', unpack(fields, 1, kept))
  if type(id) ~= 'string' then
    if id and not written and not find(id.err, 'exhausted', 1, true) then
      -- This concerns every write, and nothing is written yet: it ends here.
      return id
    end
    return nil, 'queue_gone', now + QUEUE_GONE_MS
  end
  written, sent[job_id], queues[stream] = true, true, length + 1
  if dedup then
    local claim = dedup.claim
    call('DEL', claim)
    call('SET', dedup.ours, job_id, 'PX', term.within)
  end
  if by_hand then
    -- It was no other loop that put the job back: no count of retries was seen with this one. And where nobody has
    -- counted its death, it is counted now, so that the next one is known to be another.
    call('HSET', record, 'retries', '0', 'retries_seen', '-1', 'raised', term.raised, 'deaths', job[5] or '1')
  else
    call('HSET', record, 'retries', text(retries + 1), 'raised', term.raised)
  end
  if not job[2] or (tonumber(match(entry, '^%d+')) or 0) < old then
    call('PEXPIRE', record, remember)
  end
  if job[4] then
    call('HDEL', record, 'exhausted')
  end
  if was_flying then
    local rule = job[3] and match(job[3], '^%S+ %S+ (.*)$') or ''
    local verdict = before(earlier or NEVER, entry) and 're_died' or 'lost_sight'
    audit(log, most, verdict, rule, match(was_flying, '^%S+'), job_id, term.task, '')
    landed[#landed + 1] = job_id
  end
  if room > 0 then
    local many = #in_flight
    in_flight[many + 1], in_flight[many + 2] = job_id, entry .. ' ' .. id .. term.times .. ARGV[at + 5]
    room = room - 1
  end
  if told and ARGV[at + 6] ~= '' then
    call('XADD', outbox, '*', 'type', 'job.retried', 'at', now_text, 'data', ARGV[at + 6])
  end
  audit(log, most, 'retried', term.rule, entry, job_id, term.task, id, note, part_of)
  remove(entry)
  for i = 1, twins and #twins or 0 do
    remove(twins[i])
    if term.group then
      append(dropped, term.group, twins[i])
    end
    audit(log, most, 'twin_removed', term.rule, twins[i], job_id, term.task, entry)
  end
  return id
end

local reply = {'OK', time[1], time[2]}
local done, refused = 0, {}
for n = 1, #ids do
  if work > MOST_WORK then
    break
  end
  local at = FIRST + EACH * (n - 1)
  local id, refusal, later = raise(n, at, flying[n])
  if type(id) == 'table' then
    return id
  end
  reply[n + 3] = id or refusal
  if id then
    done = done + 1
  else
    refused[refusal] = (refused[refusal] or 0) + 1
  end
  local group = terms[tonumber(ARGV[at + 2])].group
  if not group then
    -- By hand nobody knows where it waits; the loop finds it gone when it is due.
  elseif not later then
    append(dropped, group, ARGV[at])
  elseif later ~= '' then
    append(postponed, group, type(later) == 'number' and text(later) or later)
    append(postponed, group, ARGV[at])
  end
end

put_all('HDEL', flights, landed)
put_all('HSET', flights, in_flight)
count_done(operation, done, refused)
if #removals > 0 then
  call('XDEL', dlq, unpack(removals))
end
for group, list in pairs(postponed) do
  -- Later only: if the clock was set back since these were found due, now is long before they are.
  local done = pcall('ZADD', group, 'XX', 'GT', unpack(list))
  if not written and type(done) == 'table' and not find(done.err, 'WRONGTYPE', 1, true) then
    return done
  end
end
local out = 0
for group, list in pairs(dropped) do
  local done = pcall('ZREM', group, unpack(list))
  if type(done) == 'number' then
    out = out + done
  end
end
if out > 0 then
  local indexed = (tonumber(call('HGET', KEYS[2], 'indexed') or '') or 0) - out
  call('HSET', KEYS[2], 'indexed', text(math.max(indexed, 0)))
end
return reply
