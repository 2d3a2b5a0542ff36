-- Looks where retried jobs are, all at one moment. Reads only.
-- KEYS  1 state  2 DLQ  3 the framework's clock  4… queue streams, job records and dedup claims; ARGV says which by their
--       numbers
-- ARGV  1 number of further queue streams that these jobs may be on, and their keys
--       then for each flight eight: 'queue' or 'clock', where it was seen last; the entry or the name there; when (ms); the
--       job's id; when it was enqueued (ms) or ''; its queue stream; its job's record; its dedup claim or 0
-- Gives {'OK', seconds, microseconds, for each flight three: what was seen; where it is now ('queue', 'clock' or '');
--       the entry or the name there, on a further stream with its key behind a space}
--       seen: 'underway', 'failing' (under way, and an attempt has failed), 'ran_through', 're_died', 'swallowed',
--       'unclear'
-- One step, because a living job moves between its places, and only at one moment it is sure to be in one of them.
local call, pcall = redis.call, redis.pcall
local FIRST, EACH = tonumber(ARGV[1]) + 2, 8
-- A job with a dedup key is put back with this attempt; one that has failed has a higher one than it was put back with.
local LAST_ATTEMPT = '1000000'
-- Attempts under which a job is looked for on the clock, and seconds of age.
local MOST_ATTEMPTS, MOST_SECONDS = 64, 1000
-- Entries of one queue looked through at most, their bytes, and how many are read at a time.
local MOST_ENTRIES, MOST_BYTES, PAGE = 1000, 8000000, 100

local dlq, clock = KEYS[2], KEYS[3]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function field(fields, wanted)
  local found
  for i = 1, #fields, 2 do
    if fields[i] == wanted then
      found = fields[i + 1]
    end
  end
  return found
end

local function has_failed(fields)
  local attempt = field(fields, 'attempt')
  return attempt ~= LAST_ATTEMPT and (tonumber(attempt or '') or 0) > 0
end

-- What is on a queue from a time on, by job id: the newest entry's id, and whether it has failed. The second value tells
-- whether that is all of it.
local scanned = {}
local function on_queue(stream, from)
  local scan = scanned[stream]
  if scan then
    return scan.jobs, scan.whole
  end
  scan = {jobs = {}, whole = false}
  scanned[stream] = scan
  -- Somewhat earlier, because an id is made of another reading of the same clock.
  local after, entries, bytes = string.format('%.0f', math.max(from - 5, 0)), 0, 0
  while entries < MOST_ENTRIES and bytes < MOST_BYTES do
    local page = pcall('XRANGE', stream, after, '+', 'COUNT', PAGE)
    if page.err then
      break
    end
    for i = 1, #page do
      local fields = page[i][2]
      local id = field(fields, 'id')
      if id then
        scan.jobs[id] = {page[i][1], has_failed(fields)}
      end
      for f = 2, #fields, 2 do
        bytes = bytes + #fields[f]
      end
    end
    entries = entries + #page
    if #page < PAGE then
      scan.whole = true
      break
    end
    after = '(' .. page[#page][1]
  end
  return scan.jobs, scan.whole
end

-- The name under which the framework has put a job off, or nothing; the second value is false if not all could be asked.
local function on_clock(job, enqueued, seen)
  local names = {}
  for attempt = 1, MOST_ATTEMPTS do
    names[attempt] = 'retry:' .. job .. ':' .. attempt
  end
  local whole = true
  if enqueued then
    local first, last = math.floor((seen - enqueued) / 1000) - 1, math.floor((now - enqueued) / 1000) + 1
    if last - first >= MOST_SECONDS then
      whole, first = false, last - MOST_SECONDS + 1
    end
    for second = first, last do
      names[#names + 1] = 'unknown:' .. job .. ':' .. string.format('%.0f', second)
    end
  end
  local scores = pcall('ZMSCORE', clock, unpack(names))
  if scores.err then
    return nil, false
  end
  for i = 1, #names do
    if scores[i] then
      return names[i], whole
    end
  end
  return nil, whole
end

-- Whether the DLQ holds, or has held, deaths that the ledger has not read yet and that may be of a job put back then.
local unread_from
local function deaths_unread(since)
  if unread_from == nil then
    unread_from = false
    local cursor = pcall('HGET', KEYS[1], 'cursor')
    if type(cursor) ~= 'string' or not string.match(cursor, '^%d+%-%d+$') then
      unread_from = math.huge
    elseif call('EXISTS', dlq) == 1 then
      local info = pcall('XINFO', 'STREAM', dlq)
      local last = info.err and cursor or '0-0'
      for i = 1, #info, 2 do
        if info[i] == 'last-generated-id' then
          last = info[i + 1]
        end
      end
      if info.err then
        unread_from = math.huge
      elseif before(cursor, last) then
        -- What was taken away unread can only be of a job that was already put back.
        local left = #call('XRANGE', dlq, '(' .. cursor, '+', 'COUNT', 1) > 0
        unread_from = left and math.huge or tonumber(string.match(last, '^%d+'))
      end
    end
  end
  return unread_from and since <= unread_from
end

-- By queue stream the first time that any of its jobs was seen: a queue is looked through once, from then on.
local earliest, earliest_of_all = {}, math.huge
for at = FIRST, #ARGV, EACH do
  local stream, seen = KEYS[tonumber(ARGV[at + 5])], tonumber(ARGV[at + 2])
  earliest[stream] = math.min(earliest[stream] or seen, seen)
  earliest_of_all = math.min(earliest_of_all, seen)
end

-- Whether a job is on a further queue stream, and the newest entry there.
local function elsewhere(job)
  for i = 2, FIRST - 1 do
    local stream = KEYS[tonumber(ARGV[i])]
    local found = on_queue(stream, earliest[stream] or earliest_of_all)[job]
    if found then
      return found[2], found[1] .. ' ' .. stream
    end
  end
end

local function look(at)
  local where, place, seen, job = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
  local stream, record, claim = KEYS[tonumber(ARGV[at + 5])], KEYS[tonumber(ARGV[at + 6])], KEYS[tonumber(ARGV[at + 7])]
  if where == 'clock' then
    local score = pcall('ZSCORE', clock, place)
    if type(score) == 'string' then
      return string.sub(place, 1, 6) == 'retry:' and 'failing' or 'underway', where, place
    end
  else
    local found = pcall('XRANGE', stream, place, place)
    if not found.err and #found > 0 then
      return has_failed(found[1][2]) and 'failing' or 'underway', where, place
    end
  end
  local known = pcall('HMGET', record, 'entries', 'raised')
  local raised = not known.err and known[2]
  if raised and before(earlier_until(raised), string.match(known[1] or '', '%S+$') or '') then
    return 're_died', '', ''
  end
  local name, clock_whole = on_clock(job, tonumber(ARGV[at + 4]), seen)
  if name then
    return string.sub(name, 1, 6) == 'retry:' and 'failing' or 'underway', 'clock', name
  end
  local jobs, queue_whole = on_queue(stream, earliest[stream])
  if jobs[job] then
    return jobs[job][2] and 'failing' or 'underway', 'queue', jobs[job][1]
  end
  local failed, there = elsewhere(job)
  if there then
    return failed and 'failing' or 'underway', 'queue', there
  end
  -- Without the job's record nothing would tell of its death; and a clock that has gone back hides what came since.
  if not raised or not clock_whole or not queue_whole or now < seen or deaths_unread(seen) then
    return 'unclear', '', ''
  end
  local owner = claim and pcall('GET', claim)
  if owner and owner ~= job then
    return 'swallowed', '', ''
  end
  return 'ran_through', '', ''
end

local reply = {'OK', time[1], time[2]}
for at = FIRST, #ARGV, EACH do
  local seen, where, place = look(at)
  reply[#reply + 1] = seen
  reply[#reply + 1] = where
  reply[#reply + 1] = place
end
return reply
