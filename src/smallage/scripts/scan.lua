-- Looks at a piece of the DLQ, and gives what passes a sieve. Reads only.
-- KEYS  1 DLQ
-- ARGV  1 'XRANGE' or 'XREVRANGE'  2 from here on  3 up to here  4 how many to let through at most  5 what every queue
--       stream begins with  6 number of fields to give, and their names
--       then the sieve: for task and queue each the number of globs, or -1 for any, and for each glob the number of its
--       pieces, and the pieces as Lua patterns, and for more than one the bytes of the last; the number of reasons, or -1
--       for any, and they; '1' and a job's id, or '0'
-- Gives {'OK', entries looked at, the last of them or '' at the end, {for each that passes: its id, the values of the
--       fields, '' for what it does not have}}
-- One step, because what comes over the wire must not be more than what passes, however large entries are: how many are
--       read at once follows from those read before.
local call, find, sub = redis.call, string.find, string.sub
local tonumber = tonumber
-- What one step may cost: bytes read and given, a field counting as much as a hundred of them. Some milliseconds.
local MOST_WORK = 1000000
-- Entries read at once. More saves no time, and they may be huge.
local PAGE = 8
-- Garbage that is not left for later (bytes).
local HEAVY = 1000000
-- A longer text is shortened before anybody compares it.
local LONGEST = 512
local LAST_ID = '18446744073709551615-18446744073709551615'

local command, from, upto, most, queues = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local places, number = {}, tonumber(ARGV[6])
for n = 1, number do
  places[ARGV[6 + n]] = n
end

local at = 7 + number
local function next_arg()
  at = at + 1
  return ARGV[at - 1]
end
local function next_globs()
  local count = tonumber(next_arg())
  if count < 0 then
    return nil
  end
  local globs = {}
  for n = 1, count do
    local glob = {}
    for piece = 1, tonumber(next_arg()) do
      glob[piece] = next_arg()
    end
    glob.ending = #glob > 1 and tonumber(next_arg())
    globs[n] = glob
  end
  return globs
end
local tasks, of_queues = next_globs(), next_globs()
local reasons, count = nil, tonumber(next_arg())
if count >= 0 then
  reasons = {}
  for _ = 1, count do
    reasons[next_arg()] = true
  end
end
local job = next_arg() == '1' and next_arg()
local sieving = tasks or of_queues or reasons or job
local ID, TASK, REASON, SOURCE = places.id, places.task, places.dlq_reason, places.dlq_source

-- Pieces are found one after the other, each as early as it can be, which is as far as a glob can get.
local function matches(glob, name)
  local pieces = #glob
  local _, last = find(name, glob[1])
  for n = 2, pieces - 1 do
    if not last then
      return false
    end
    _, last = find(name, glob[n], last + 1)
  end
  if pieces == 1 or not last then
    return last
  end
  local ending = #name - glob.ending
  return ending >= last and find(name, glob[pieces], ending + 1)
end

-- Whoever decodes an entry may read a name otherwise than it is here: then it passes.
local function is_odd(name)
  return #name > LONGEST or find(name, '[\128-\255]')
end

local function one_matches(globs, name)
  if is_odd(name) then
    return true
  end
  for n = 1, #globs do
    if matches(globs[n], name) then
      return true
    end
  end
  return false
end

local function passes(values)
  local reason, source = values[REASON], values[SOURCE]
  if reasons and not reasons[reason] and not is_odd(reason) then
    return false
  end
  local id, task, queue = values[ID], values[TASK], source
  if sub(source, 1, #queues) == queues then
    queue = sub(source, #queues + 1)
    local _, _, name = find(#queue <= LONGEST and queue or '', '^(.*):%d+$')
    queue = name or queue
  elseif is_odd(source) then
    return true
  elseif source ~= '' then
    -- It comes from a foreign stream, and what it calls so is no job and no task.
    id, task = '', ''
  end
  return (not job or id == job or is_odd(id)) and (not of_queues or one_matches(of_queues, queue))
    and (not tasks or one_matches(tasks, task))
end

local given, looked_at, work, page_size = {}, 0, 0, 1
local last = ''
while true do
  local page = call(command, KEYS[1], from, upto, 'COUNT', page_size)
  local heaviest, bytes, full = 1, 0, #page == page_size
  for n = 1, #page do
    local fields, values = page[n][2], {}
    local cost = weight(fields)
    bytes, heaviest, work = bytes + cost, cost > heaviest and cost or heaviest, work + cost
    for place = 1, number do
      values[place] = ''
    end
    for f = 1, #fields, 2 do
      local place = places[fields[f]]
      if place then
        values[place] = fields[f + 1]
      end
    end
    last, looked_at = page[n][1], looked_at + 1
    if not sieving or passes(values) then
      work = work + weight(values)
      given[#given + 1] = last
      given[#given + 1] = values
    end
    -- What is left of a page that has turned out to be heavy is for the next piece.
    if #given == 2 * most or work >= MOST_WORK then
      return {'OK', looked_at, last, given}
    end
  end
  if not full or (last == LAST_ID and command == 'XRANGE') then
    return {'OK', looked_at, '', given}
  end
  page_size = math.max(math.min(2 * page_size, PAGE, math.floor((MOST_WORK - work) / heaviest)), 1)
  from = '(' .. last
  if bytes > HEAVY then
    page = nil
    collectgarbage()
  end
end
