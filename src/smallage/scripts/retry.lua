-- Puts jobs back on their queues, each if everything still allows it.
-- KEYS  1 lease  2 state  3 DLQ (entries are removed)  4 flights  5 outbox  6 audit log  7… job records, queue streams
--       (entries are added), groups' entries, dedup claims (smallage's; a job's own is freed) and our claims; ARGV says
--       which by their numbers
-- ARGV  1 token  2 generation of the rules  3 how long a job is remembered (ms)  4 lines kept in the audit log
--       5… for each retry seventeen: its entry; its job's id; the job's record; the queue stream, or 0 if it is foreign;
--       its group's entries; the dedup key or ''; its claim and our claim, or 0; the retries it is planned for; the
--       most retries the rule grants; not before this (ms); the queue's longest length; how long it is waited for a
--       verdict (ms); the rule; the task; the flight as JSON; the data of `job.retried` as JSON or ''
-- Gives {'OK', seconds, microseconds, for each retry the id of its new queue entry, or the name of why it was refused}
--       or {'FENCED'} or {'MOVED'}
-- One step, because a crash between any two of these writes would lose the job, run it twice, or forget that it was
--       retried.
if call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
if (tonumber(call('HGET', KEYS[2], 'generation') or '') or 0) ~= tonumber(ARGV[2]) then
  return {'MOVED'}
end
local dlq, flights, outbox, log = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local remember, most = ARGV[3], ARGV[4]
local missing = denied('xadd', outbox, '*', 'x', 'x') or denied('hset', flights, 'x', 'x')
  or denied('xdel', dlq, '0-1') or denied('zadd', flights, 0, 'x')
  or denied('zrem', flights, 'x') or denied('pexpire', flights, 1) or denied('del', flights)
  or denied('set', flights, 'x') or denied('hdel', flights, 'x')
if missing then
  return missing
end
-- An outbox of another type ends it here, before anything is written.
call('XLEN', outbox)

local FIRST, EACH = 5, 17
-- A record with more fields than this is no job, and more than a script can pass on.
local MOST_FIELDS = 2000
-- The attempt of a job with a dedup key: if it fails it is buried at once, for smallage would drop its next attempt.
local LAST_ATTEMPT = '1000000'
local QUEUE_GONE_MS, QUEUE_TOO_LONG_MS, IN_FLIGHT_MS, SUPERSEDED_MS = 60000, 5000, 5000, 60000
local CLAIMED_LEAST_MS, CLAIMED_MOST_MS = 1000, 60000

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number)
  return string.format('%.0f', number)
end

local ids = {}
for at = FIRST + 1, #ARGV, EACH do
  ids[#ids + 1] = ARGV[at]
end
local flying = pcall('HMGET', flights, unpack(ids))
if flying.err then
  flying = {}
end

local last = last_id(dlq)

-- By queue stream its length, or false where there is none.
local queues = {}
local function length_of(stream)
  if queues[stream] == nil then
    local length = pcall('XLEN', stream)
    if type(length) ~= 'number' or (length == 0 and call('EXISTS', stream) == 0) then
      length = false
    end
    queues[stream] = length
  end
  return queues[stream]
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

-- Job ids put back in this step; entries removed; by group what leaves the index, and what waits there until when.
local sent, removed, removals, dropped, postponed = {}, {}, {}, {}, {}
local in_flight = {}
local written = false

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

-- The fields of a record as they go on the queue: without those of its burial, and with a new `attempt`. Nothing if it
-- is not this job's record, or cannot be put back.
local function live(fields, job, stream, dedup)
  if #fields > 2 * MOST_FIELDS then
    return nil
  end
  local id, source, key
  local kept, attempts = 0, {}
  for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    if string.byte(name) == 100 and string.sub(name, 1, 4) == 'dlq_' then
      if name == 'dlq_source' then
        source = value
      end
    else
      if name == 'id' then
        id = value
      elseif name == 'dedup' then
        key = value
      elseif name == 'attempt' then
        attempts[#attempts + 1] = kept + 2
      end
      fields[kept + 1], fields[kept + 2] = name, value
      kept = kept + 2
    end
  end
  -- Of a field that is there twice the last counts, as it does for smallage's workers.
  if id ~= job or job == '' or source ~= stream or (key or '') ~= dedup or key == '' then
    return nil
  end
  if #attempts == 0 then
    fields[kept + 1] = 'attempt'
    kept = kept + 2
    attempts[1] = kept
  end
  for i = 1, #attempts do
    fields[attempts[i]] = key and LAST_ATTEMPT or '0'
  end
  for i = #fields, kept + 1, -1 do
    fields[i] = nil
  end
  return fields
end

-- Decides about one retry and makes it. Gives the new queue entry's id, or a refusal and the time it can pass, if it
-- can.
local function raise(at, was_flying)
  local entry, job_id, record = ARGV[at], ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])]
  local stream, rule, task = KEYS[tonumber(ARGV[at + 3])], ARGV[at + 13], ARGV[at + 14]
  if removed[entry] then
    return nil, 'entry_gone'
  end
  if was_flying or sent[job_id] then
    return nil, 'in_flight', now + IN_FLIGHT_MS
  end
  local found = pcall('XRANGE', dlq, entry, entry)
  if found.err or #found == 0 then
    return nil, 'entry_gone'
  end
  if not stream then
    return nil, 'foreign_stream'
  end
  local dedup = ARGV[at + 5]
  local fields = live(found[1][2], job_id, stream, dedup)
  local job = pcall('HMGET', record, 'retries', 'entries', 'earlier_until', 'exhausted')
  -- Where a job's retries cannot be counted, it is not retried.
  if not fields or job.err then
    return nil, 'malformed'
  end
  if now < tonumber(ARGV[at + 10]) then
    return nil, 'too_young', ARGV[at + 10]
  end
  local retries = tonumber(job[1] or '') or 0
  if retries ~= tonumber(ARGV[at + 8]) then
    return nil, 'stale', ''
  end
  if retries >= tonumber(ARGV[at + 9]) then
    return nil, 'allowance_spent'
  end
  if of_earlier_life(job[3] or '0-0', entry, last) then
    local line = audit(log, most, 'twin_removed', rule, entry, job_id, task, 'buried before the last retry')
    if type(line) == 'table' and not written and not string.find(line.err, 'WRONGTYPE', 1, true) then
      return line
    end
    written = true
    remove(entry)
    return nil, 'superseded'
  end
  local twins = {}
  for other in string.gmatch(job[2] or '', '%S+') do
    if other ~= entry and not removed[other] and buried(dlq, other) then
      if before(entry, other) then
        -- It goes when the newer one is put back; should a person remove that, its own turn comes.
        return nil, 'superseded', now + SUPERSEDED_MS
      end
      twins[#twins + 1] = other
    end
  end
  local length = length_of(stream)
  if not length then
    return nil, 'queue_gone', now + QUEUE_GONE_MS
  end
  if length >= tonumber(ARGV[at + 11]) then
    return nil, 'queue_too_long', now + QUEUE_TOO_LONG_MS
  end
  local claim, ours
  if dedup ~= '' then
    claim, ours = KEYS[tonumber(ARGV[at + 6])], KEYS[tonumber(ARGV[at + 7])]
    local wait = held_by_another(claim, job_id) or held_by_another(ours, job_id)
    if wait then
      return nil, 'dedup_claimed', now + wait
    end
  end

  local id = pcall('XADD', stream, 'NOMKSTREAM', '*', unpack(fields))
  if type(id) ~= 'string' then
    if id and not written and not string.find(id.err, 'exhausted', 1, true) then
      -- This concerns every write, and nothing is written yet: it ends here.
      return id
    end
    return nil, 'queue_gone', now + QUEUE_GONE_MS
  end
  written, sent[job_id], queues[stream] = true, true, length + 1
  if claim then
    call('DEL', claim)
    call('SET', ours, job_id, 'PX', ARGV[at + 12])
  end
  put('HSET', record, 'retries', text(retries + 1), 'rule', rule, 'retried_at', text(now), 'entries', '',
    'earlier_until', last)
  call('PEXPIRE', record, remember)
  if job[4] then
    call('HDEL', record, 'exhausted')
  end
  in_flight[#in_flight + 1] = job_id
  in_flight[#in_flight + 1] = entry .. ' ' .. id .. ' ' .. text(now) .. ' ' .. text(now + ARGV[at + 12]) .. ' 0 '
    .. ARGV[at + 15]
  if ARGV[at + 16] ~= '' then
    call('XADD', outbox, '*', 'type', 'job.retried', 'at', text(now), 'data', ARGV[at + 16])
  end
  audit(log, most, 'retried', rule, entry, job_id, task, id)
  remove(entry)
  for i = 1, #twins do
    remove(twins[i])
    append(dropped, ARGV[at + 4], twins[i])
    audit(log, most, 'twin_removed', rule, twins[i], job_id, task, entry)
  end
  return id
end

local reply = {'OK', time[1], time[2]}
for n = 1, #ids do
  local at = FIRST + EACH * (n - 1)
  local id, refusal, later = raise(at, flying[n])
  if type(id) == 'table' then
    return id
  end
  reply[n + 3] = id or refusal
  if not later then
    append(dropped, ARGV[at + 4], ARGV[at])
  elseif later ~= '' then
    append(postponed, ARGV[at + 4], type(later) == 'number' and text(later) or later)
    append(postponed, ARGV[at + 4], ARGV[at])
  end
end

if #in_flight > 0 then
  put('HSET', flights, unpack(in_flight))
end
if #removals > 0 then
  call('XDEL', dlq, unpack(removals))
end
for key, list in pairs(postponed) do
  local done = pcall('ZADD', KEYS[tonumber(key)], 'XX', unpack(list))
  if not written and type(done) == 'table' and not string.find(done.err, 'WRONGTYPE', 1, true) then
    return done
  end
end
local out = 0
for key, list in pairs(dropped) do
  local done = pcall('ZREM', KEYS[tonumber(key)], unpack(list))
  if type(done) == 'number' then
    out = out + done
  end
end
if out > 0 then
  local indexed = (tonumber(call('HGET', KEYS[2], 'indexed') or '') or 0) - out
  call('HSET', KEYS[2], 'indexed', text(math.max(indexed, 0)))
end
return reply
