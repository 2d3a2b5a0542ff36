-- Makes rules the ones in force: a new generation of the due index, unless they are in force already.
-- KEYS  1 lease  2 state  3 the index's pools in the generation proposed
-- ARGV  1 token  2 the leader's cursor  3 the rules' fingerprint, '' for no rules  4 the generation proposed
-- Gives {'OK', generation in force}, {'TAKEN', generation so far} if the proposed one cannot be the next, {'FENCED'},
--       or {'MOVED'} if the ledger has another cursor
-- One step, because entries up to the cursor are judged anew and later ones are planned when they are read: the cursor
--       must not move in between.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'FENCED'}
end
local state = redis.call('HMGET', KEYS[2], 'cursor', 'generation', 'rules')
if state[1] ~= ARGV[2] then
  return {'MOVED'}
end
local generation = tonumber(state[2] or '') or 0
if state[3] == ARGV[3] and generation > 0 or ARGV[3] == '' and generation == 0 then
  return {'OK', generation}
end
local proposed = tonumber(ARGV[4])
-- A ledger that has lost its state may have left an index behind; it is not taken up.
if proposed <= generation or redis.call('EXISTS', KEYS[3]) == 1 then
  return {'TAKEN', generation}
end
-- Without rules nothing is to be judged.
local judge_until = ARGV[3] == '' and '0-0' or ARGV[2]
redis.call('HSET', KEYS[2], 'generation', string.format('%.0f', proposed), 'rules', ARGV[3], 'indexed', '0',
  'judged', '0-0', 'judge_until', judge_until)
return {'OK', proposed}
