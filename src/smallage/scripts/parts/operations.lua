-- Part of retry.lua and remove.lua: the bulk operation that a step is a part of, if it is one.

-- Whether it still runs; what is part of none always does.
local function still_runs(operation)
  return not operation or pcall('HGET', operation, 'state') == 'running'
end

-- Counts what a step has done, and by their names the refusals.
local function count_done(operation, done, refused)
  if not operation then
    return
  end
  if done > 0 then
    pcall('HINCRBY', operation, 'done', done)
  end
  for name, times in pairs(refused) do
    pcall('HINCRBY', operation, 'refused:' .. name, times)
  end
end
