-- Finds where a new leader reads on, and mends the ledger where the store has lost data.
-- KEYS  1 lease  2 state  3 DLQ
-- ARGV  1 token  2 '1' to announce what is there already  3 '1' if the caller has led here before  4 an id for a new ledger
-- Gives {'OK', ledger id, cursor, existing_until or '', existing_tally or '', loss or '', 1 if there is a DLQ else 0} or
--       {'FENCED'}
--       loss: 'ledger' (it is gone though the caller had one) or 'cursor' (the DLQ ends before the cursor)
-- One step, because entries may be added while it looks, and the cursor must fit what it saw.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end

-- Stream ids are two 64-bit numbers, more than a Lua number holds: compare them as texts of digits.
local function before(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am ~= bm then
    return #am < #bm or (#am == #bm and am < bm)
  end
  return #as < #bs or (#as == #bs and as < bs)
end

local dlq = {length = 0, ['entries-added'] = 0, ['last-generated-id'] = '0-0'}
local exists = redis.call('EXISTS', KEYS[3])
if exists == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[3])
  for i = 1, #info, 2 do
    dlq[info[i]] = info[i + 1]
  end
end
local length, added, last = dlq['length'], dlq['entries-added'], dlq['last-generated-id']

local state = {}
local flat = redis.call('HGETALL', KEYS[2])
for i = 1, #flat, 2 do
  state[flat[i]] = flat[i + 1]
end

local loss = ''
-- What is no stream id is a ledger that something else has written to: as good as lost.
if state['cursor'] and not string.match(state['cursor'], '^%d+%-%d+$') then
  state['cursor'], ARGV[3] = nil, '1'
end
-- `counted`: how many of the entries ever added the surveys have counted; those that were there before do not count.
local counted = tonumber(state['counted'] or '') or added
local cursor = state['cursor']
-- `seen`: how many of the entries ever added lie at or before the cursor.
local seen = tonumber(state['seen'] or '0') or 0
if not cursor then
  seen = added - length
  if ARGV[3] == '1' then
    loss = 'ledger'
  end
  -- Whatever there is to read is read anew, so nothing is left to be judged.
  redis.call('HDEL', KEYS[2], 'judged', 'judge_until')
  if length == 0 then
    cursor = last
  else
    cursor = '0-0'
    if ARGV[3] == '1' or ARGV[2] == '1' then
      counted = seen
    else
      state['existing_until'] = last
      redis.call('HSET', KEYS[2], 'existing_until', last)
    end
  end
elseif before(last, cursor) then
  -- A deleted DLQ begins anew; what is in it now was never read.
  if length > 0 then
    loss = 'cursor'
  end
  cursor = '0-0'
  seen = added - length
  state['existing_until'] = nil
  redis.call('HDEL', KEYS[2], 'existing_until', 'existing_tally', 'judged', 'judge_until')
elseif seen > added then
  seen = added
end

local uid = state['uid'] or ARGV[4]
redis.call('HSET', KEYS[2], 'uid', uid, 'cursor', cursor, 'seen', string.format('%.0f', seen),
  'counted', string.format('%.0f', counted))
return {'OK', uid, cursor, state['existing_until'] or '', state['existing_tally'] or '', loss, exists}
