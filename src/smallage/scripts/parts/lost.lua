-- Part of survey.lua and lost.lua: whether the outbox has lost what was there once.

-- Whether an event that was there ('' for none) is gone without having been trimmed. The outbox is only ever trimmed from
-- its beginning, and keeps its last id: what is missing behind that, or behind an older event, was never written here.
-- While nothing comes, that event is the last one, and nothing has to be read. `last` is last_id(outbox, '').
local function has_lost(outbox, event, last)
  if event == '' or event == last or #redis.pcall('XRANGE', outbox, event, event) > 0 then
    return false
  end
  if last == '' then
    return redis.call('EXISTS', outbox) == 0
  end
  return before(last, event) or #redis.call('XRANGE', outbox, '-', event, 'COUNT', 1) > 0
end
