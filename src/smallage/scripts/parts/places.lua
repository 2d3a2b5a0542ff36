-- Part of commits: which places of the outbox they write to.

-- The place of the last event of a lane, or 0-0 where there is none. Who appends tells its caller this and then the places
-- that it has written, in one text with blanks between: so the caller knows that nothing lies between them.
local function last_place(outbox)
  local last = redis.call('XREVRANGE', outbox, '+', '-', 'COUNT', 1)[1]
  return last and last[1] or '0-0'
end

