-- Part of survey.lua and lost.lua: whether the outbox has lost what was there once.

-- The last id that the outbox has ever given, or '' where there is none, or where it holds no events.
local function last_told(outbox)
  local info = redis.pcall('XINFO', 'STREAM', outbox)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      return info[i + 1]
    end
  end
  return ''
end

-- Whether an event that was there ('' for none) is gone without having been trimmed. The outbox is only ever trimmed from
-- its beginning, and keeps its last id: what is missing behind that, or behind an older event, was never written here.
-- While nothing comes, that event is the last one, and nothing has to be read.
local function has_lost(outbox, event, last)
  if event == '' or event == last or #redis.pcall('XRANGE', outbox, event, event) > 0 then
    return false
  end
  if last == '' then
    return redis.call('EXISTS', outbox) == 0
  end
  return before(last, event) or #redis.call('XRANGE', outbox, '-', event, 'COUNT', 1) > 0
end
