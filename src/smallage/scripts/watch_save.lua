-- Saves what has changed of the watch over the line and appends what is to be told, if nobody has saved since it was
-- loaded.
-- KEYS  1 lease  2 watch  3 outbox
-- ARGV  1 token  2 the revision it was loaded at (0: never saved)  3 number of events, and for each two: its type; its
--       data as JSON
--       then the number of fields that are set, and for each two: its name; its text
--       then the names of fields that go
-- Gives {'OK', revision} or {'FENCED'} or {'MOVED'}
-- One step, because a page that is told and not remembered would be told again under another name, and one that is
-- remembered and not told would be lost.
if call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local watch, outbox = KEYS[2], KEYS[3]
-- What is no number of ours counts as never saved.
local stored = pcall('HGET', watch, 'revision')
local is_ours = type(stored) == 'string' and #stored < 16 and string.match(stored, '^%d+$')
local revision = is_ours and tonumber(stored) or 0
if revision ~= tonumber(ARGV[2]) then
  return {'MOVED'}
end
local missing = denied('xadd', outbox, '*', 'x', 'x') or denied('hset', watch, 'x', 'x') or denied('hdel', watch, 'x')
  or denied('del', watch)
if missing then
  return missing
end

local at = 4 + 2 * tonumber(ARGV[3])
if at > 4 then
  -- An outbox of another type ends it here, before anything is written.
  call('XLEN', outbox)
end
-- Events first: they need memory, and nothing else is written if there is none.
for event = 4, at - 1, 2 do
  call('XADD', outbox, '*', 'type', ARGV[event], 'data', ARGV[event + 1])
end
revision = string.format('%.0f', revision + 1)
local last = at + 2 * tonumber(ARGV[at])
local set, gone = {'revision', revision}, {}
for i = at + 1, last do
  set[#set + 1] = ARGV[i]
end
for i = last + 1, #ARGV do
  gone[#gone + 1] = ARGV[i]
end
put_all('HSET', watch, set)
put_all('HDEL', watch, gone)
return {'OK', revision}
