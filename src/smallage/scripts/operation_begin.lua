-- Remembers a new bulk operation, and forgets the oldest ones.
-- KEYS  1 the bulk operations  2 what is known of the new one  3 audit log  4… what is known of the oldest ones
-- ARGV  1 its id  2 when it was asked for (ms)  3 it as JSON  4 how long it is kept (ms)  5 lines kept in the audit log
--       6 who  7 the note  8 what it is to do  9 how many are too many  10… the ids of the oldest ones, in order
-- Gives {'OK'} or {'MOVED'} if there is one of this id
-- One step, because the list must name what there is, and nothing may begin without a line in the audit log.
local operations, operation = KEYS[1], KEYS[2]
if call('EXISTS', operation) == 1 then
  return {'MOVED'}
end
local missing = denied('pexpire', operation, 1) or denied('zadd', operations, 0, 'x') or denied('zrem', operations, 'x')
  or denied('unlink', operation) or denied('xadd', operations, '*', 'x', 'x')
if missing then
  return missing
end
call('HSET', operation, 'operation', ARGV[3], 'state', 'running', 'revision', '1')
call('PEXPIRE', operation, ARGV[4])
put('ZADD', operations, ARGV[2], ARGV[1])
local too_many = tonumber(ARGV[9])
for i = 4, #KEYS do
  local gone = call('EXISTS', KEYS[i]) == 0
  if gone or (too_many > 0 and not still_runs(KEYS[i])) then
    call('UNLINK', KEYS[i])
    call('ZREM', operations, ARGV[i + 6])
    too_many = too_many - 1
  end
end
audit(KEYS[3], ARGV[5], 'begun', ARGV[6], '', '', '', ARGV[8], ARGV[7], ARGV[1])
return {'OK'}
