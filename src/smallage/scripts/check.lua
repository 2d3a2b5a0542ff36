-- Looks whether the ledger and the DLQ are as the leader believes.
-- KEYS  1 lease  2 state  3 DLQ
-- ARGV  1 token  2 the leader's cursor
-- Gives {'OK'}, {'FENCED'}, or {'MOVED'} if the ledger has another cursor or the DLQ ends before it: the store has lost
--       data, or was changed by somebody else
-- One step, because the cursor and the DLQ's end must be seen at the same moment.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
if redis.call('HGET', KEYS[2], 'cursor') ~= ARGV[2] then
  return {'MOVED'}
end
-- An empty DLQ reaches as far as the cursor, as far as anybody can tell.
if #redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', 1) == 0 then
  return {'OK'}
end
local info = redis.call('XINFO', 'STREAM', KEYS[3])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then
    local am, as = string.match(info[i + 1], '^(%d+)-(%d+)$')
    local bm, bs = string.match(ARGV[2], '^(%d+)-(%d+)$')
    local before = am ~= bm and (#am < #bm or (#am == #bm and am < bm))
      or am == bm and (#as < #bs or (#as == #bs and as < bs))
    if before then
      return {'MOVED'}
    end
  end
end
return {'OK'}
