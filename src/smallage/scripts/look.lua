-- Looks where retried jobs are, all at one moment. Reads only.
-- KEYS  1 state  2 DLQ  3 the framework's clock  4… queue streams, job records and dedup claims; ARGV says which by their
--       numbers
-- ARGV  1 number of further queue streams that these jobs may be on, and their keys
--       then for each flight nine: 'queue' or 'clock', where it was seen last; the entry or the name there; when (ms);
--       the job's id; when it was enqueued (ms) or ''; its queue stream; its job's record; its dedup claim or 0; when it
--       was put back (ms)
-- Gives {'OK', seconds, microseconds, for each flight three: what was seen; where it is now ('queue', 'clock' or '');
--       the entry or the name there, on a further stream with its key behind a space}
--       seen: 'underway', 'failing' (under way, and an attempt has failed), 'ran_through', 're_died', 'swallowed',
--       'unclear'
-- One step, because a living job moves between its places, and only at one moment it is sure to be in one of them.
local call, pcall = redis.call, redis.pcall
local FIRST, EACH = tonumber(ARGV[1]) + 2, 9
-- A job with a dedup key is put back with this attempt; one that has failed has a higher one than it was put back with.
local LAST_ATTEMPT = '1000000'
-- Attempts under which a job is looked for on the clock, and seconds of age.
local MOST_ATTEMPTS, MOST_SECONDS = 64, 1000
-- Entries of one queue looked through at most, their bytes, and how many are read at a time; names on the clock.
local MOST_ENTRIES, MOST_BYTES, PAGE, MOST_NAMES = 1000, 8000000, 100, 1000

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

-- Gives each entry of a stream from an id on to a function, as far as the limits allow. Gives how many there were, and
-- whether that was all.
local function each_entry(stream, after, take)
  local entries, bytes = 0, 0
  while entries < MOST_ENTRIES and bytes < MOST_BYTES do
    local page = pcall('XRANGE', stream, after, '+', 'COUNT', PAGE)
    if page.err then
      return entries, false
    end
    for i = 1, #page do
      local fields = page[i][2]
      take(page[i][1], fields)
      for f = 2, #fields, 2 do
        bytes = bytes + #fields[f]
      end
    end
    entries = entries + #page
    if #page < PAGE then
      return entries, true
    end
    after = '(' .. page[#page][1]
  end
  return entries, false
end

-- By queue stream the first time that any of its jobs was put back, that any was seen, and that any was seen of those
-- seen just now. A new leader knows of long ago, and may have more to look through than it can; that must not hide from
-- it what it has seen itself since.
local JUST_NOW_MS = 2000
local first_sent, first_seen, first_recent = {}, {}, {}
-- Of any stream: for those that no flight has been seen on yet.
local ANY = ''
for at = FIRST, #ARGV, EACH do
  local stream, seen, sent = KEYS[tonumber(ARGV[at + 5])], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 8])
  first_seen[ANY] = math.min(first_seen[ANY] or seen, seen)
  first_sent[ANY] = math.min(first_sent[ANY] or sent, sent)
  local first = now - seen <= JUST_NOW_MS and first_recent or first_seen
  first[stream] = math.min(first[stream] or seen, seen)
  first_sent[stream] = math.min(first_sent[stream] or sent, sent)
end

-- What is on a queue, by job id: the newest entry's id, and whether it has failed. The second value tells whether that is
-- all that can be of use: what was added since its jobs were put back. Of a long queue only that is looked at which was
-- added since they were seen, by a clock that may have been set back meanwhile.
local scanned = {}
local function on_queue(stream, seen)
  local length = pcall('XLEN', stream)
  local which, from = 'all ', first_sent[stream] or first_sent[ANY]
  if type(length) ~= 'number' or length >= MOST_ENTRIES then
    which, from = 'old ', first_seen[stream] or first_seen[ANY]
    if now - seen <= JUST_NOW_MS and first_recent[stream] then
      which, from = 'recent ', first_recent[stream]
    end
  end
  local scan = scanned[which .. stream]
  if not scan then
    scan = {jobs = {}}
    -- Somewhat earlier, because an id is made of another reading of the same clock.
    local _, whole = each_entry(stream, string.format('%.0f', math.max(from - 5, 0)), function(entry, fields)
      local id = field(fields, 'id')
      if id then
        scan.jobs[id] = {entry, has_failed(fields)}
      end
    end)
    -- A queue that workers read stays when it is empty; of one that is gone nobody knows what became of its jobs.
    scan.whole = whole and call('EXISTS', stream) == 1
    scanned[which .. stream] = scan
  end
  return scan.jobs, scan.whole
end

-- All names on the clock by job id, if they are not too many: then nothing needs to be guessed.
local put_off
local function all_put_off()
  if put_off == nil then
    put_off = false
    local length = pcall('ZCARD', clock)
    if type(length) == 'number' and length <= MOST_NAMES then
      put_off = {}
      local names = call('ZRANGE', clock, 0, -1)
      for i = 1, #names do
        local retried = string.match(names[i], '^retry:(.*):%d+$')
        local job = retried or string.match(names[i], '^unknown:(.*):%d+$')
        if job and (retried or not put_off[job]) then
          put_off[job] = names[i]
        end
      end
    end
  end
  return put_off
end

-- The name under which the framework has put a job off, or nothing; the second value is false if not all could be asked.
local function on_clock(job, enqueued, seen)
  local all = all_put_off()
  if all then
    return all[job], true
  end
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

-- The deaths that the ledger has not read yet: the jobs they are of, and until when (ms) there may be others.
local unread
local function read_unread()
  unread = {jobs = {}, others_until = nil}
  local cursor = pcall('HGET', KEYS[1], 'cursor')
  if type(cursor) ~= 'string' or not string.match(cursor, '^%d+%-%d+$') then
    unread.others_until = math.huge
    return
  end
  if call('EXISTS', dlq) == 0 then
    return
  end
  local info, known = pcall('XINFO', 'STREAM', dlq), {}
  if info.err then
    unread.others_until = math.huge
    return
  end
  for i = 1, #info, 2 do
    known[info[i]] = info[i + 1]
  end
  if not before(cursor, known['last-generated-id']) then
    return
  end
  local entries, whole = each_entry(dlq, '(' .. cursor, function(_, fields)
    local id = field(fields, 'id')
    if id then
      unread.jobs[id] = true
    end
  end)
  local taken = known['max-deleted-entry-id'] or '0-0'
  if not whole then
    unread.others_until = math.huge
  elseif entries == 0 then
    unread.others_until = tonumber(string.match(known['last-generated-id'], '^%d+'))
  elseif before(cursor, taken) then
    -- What was taken away unread can only be of a job that had been put back before that.
    unread.others_until = tonumber(string.match(taken, '^%d+'))
  end
end

-- Whether a job that was seen at this time may have died since without the ledger having read of it.
local function may_have_died(job, since)
  if not unread then
    read_unread()
  end
  return unread.jobs[job] or (unread.others_until and since <= unread.others_until)
end

-- Whether a job is on a further queue stream: whether it has failed, and the newest entry there. The last value tells
-- whether all of them could be looked through.
local function elsewhere(job, seen)
  local all = true
  for i = 2, FIRST - 1 do
    local stream = KEYS[tonumber(ARGV[i])]
    local jobs, whole = on_queue(stream, seen)
    if jobs[job] then
      return jobs[job][2], jobs[job][1] .. ' ' .. stream, true
    end
    -- A further stream need not be there.
    all = all and (whole or call('EXISTS', stream) == 0)
  end
  return false, nil, all
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
  local name, clock_whole = on_clock(job, tonumber(ARGV[at + 4]), seen)
  if name then
    return string.sub(name, 1, 6) == 'retry:' and 'failing' or 'underway', 'clock', name
  end
  local jobs, queue_whole = on_queue(stream, seen)
  if jobs[job] then
    return jobs[job][2] and 'failing' or 'underway', 'queue', jobs[job][1]
  end
  -- Only now: a worker that had died before it let go of an earlier life may bury that once more while this one goes on.
  local known = pcall('HMGET', record, 'entries', 'raised')
  local raised = not known.err and known[2]
  if raised and before(earlier_until(raised), string.match(known[1] or '', '%S+$') or '') then
    return 're_died', '', ''
  end
  local failed, there, all_looked_through = elsewhere(job, seen)
  if there then
    return failed and 'failing' or 'underway', 'queue', there
  end
  -- Without the job's record nothing would tell of its death; and a clock that has gone back hides what came since.
  if not raised or not clock_whole or not queue_whole or not all_looked_through or now < seen or may_have_died(job, seen) then
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
