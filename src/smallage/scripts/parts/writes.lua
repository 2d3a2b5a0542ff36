-- Part of all scripts that write more than one thing: writes that cannot end a script half way through.
-- A script is not rolled back: what could fail is tried before the first write, or does not matter.
local call, pcall = redis.call, redis.pcall

-- An error if the user may not run this command: asked before the first write.
local function denied(command, ...)
  if redis.acl_check_cmd and not redis.acl_check_cmd(command, ...) then
    return redis.error_reply('NOPERM this user may not run ' .. command .. ', which the ledger needs')
  end
end

-- An error if nothing can be written now, be it for lack of memory. Asked of a sorted set, which stays as it is, by scripts
-- whose first write would need none.
local function refused_to_write(set)
  local done = pcall('ZADD', set, 'XX', 0, '')
  if type(done) == 'table' and not string.find(done.err, 'WRONGTYPE', 1, true) then
    return done
  end
end

-- Writes to a key of the ledger. What has another type under its name was not written by Sexton, and makes room.
local function put(command, key, ...)
  local done = pcall(command, key, ...)
  if type(done) ~= 'table' or not done.err then
    return done
  end
  if string.find(done.err, 'WRONGTYPE', 1, true) then
    call('DEL', key)
  end
  return call(command, key, ...)
end

-- The same with many values, in pieces that a script can pass on; a pair is never torn.
local function put_all(command, key, values)
  for i = 1, #values, 1000 do
    put(command, key, unpack(values, i, math.min(i + 999, #values)))
  end
end

-- Adds a line to the audit log: what was done and by whom; of which entry, and more about it; of which job, and its
-- task; by hand perhaps with a note, and as a part of which operation. Where the log is of another type, it does not
-- stand in the way of what it tells of.
local function audit(log, most, what, by, entry, job, task, detail, note, operation)
  if note and (note ~= '' or operation ~= '') then
    return pcall('XADD', log, 'MAXLEN', '~', most, '*', what, by, entry, detail, job, task, note, operation)
  end
  return pcall('XADD', log, 'MAXLEN', '~', most, '*', what, by, entry, detail, job, task)
end
