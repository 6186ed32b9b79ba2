#!lua flags=allow-oom
-- Gives a halted segment back what it must remember of orders, as the ledger has it: answers, and counts of buyers.
--
-- Closes the race with somebody else who mends: only whoever halted the segment last may write.
--
-- KEYS 1 stock    hash  mending
--      2 answers  hash  order id -> answer
--      3 buyers   hash  buyer id -> units counted against the limit; line feed and buyer id -> 1: gave something back
-- ARGV 1 n      pairs in the batch
--      2 token
--      3 what   answers | buyers
--      then columns of n: order ids or fields of `buyers`, answers or counts (0: none)
-- Returns {'fenced', fence} | {'ok', n}
-- Keeps  available
-- Cost   one HSET; O(n)

local stock, answers, buyers = KEYS[1], KEYS[2], KEYS[3]
local n, token, what = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local name0, value0 = 3, 3 + n

local s = redis.call('HMGET', stock, 'mending', 'fence')
if s[1] ~= token then return {'fenced', s[2] or '0'} end
for i = 1, n do
  local name, value = ARGV[name0 + i], ARGV[value0 + i]
  if what == 'answers' then
    redis.call('HSET', answers, name, value)
  elseif value == '0' then
    redis.call('HDEL', buyers, name)
  else
    redis.call('HSET', buyers, name, value)
  end
end
return {'ok', n}
