#!lua flags=allow-oom
-- Gives a halted segment back what it must remember of orders, as the ledger has it: answers, and counts of buyers.
--
-- Closes the race with somebody else who mends: only whoever halted the segment last may write. And with asks that are still under way: a walk that
-- had not ended ends by what is written here, and is forgotten no sooner than if it had ended by itself.
--
-- KEYS 1 stock    hash  mending, fence
--      2 answers  hash  order id -> answer
--      3 buyers   hash  buyer id -> units counted against the limit; line feed and buyer id -> 1: gave something back
--      4 walks    zset  unfinished walks, by the millisecond at which they fall due
-- ARGV 1 n      pairs in the batch
--      2 token
--      3 what   answers | buyers
--      4 margin_ms  how long after its last deadline a final walk may be forgotten
--      then columns of n: order ids or fields of `buyers`, answers or counts (0: none), and for answers packed orders (`` away from home)
-- Returns {'fenced', fence} | {'ok', n}
-- Keeps  available
-- Cost   O(n log walks)

local stock, answers, buyers, walks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, token, what, margin = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local name0, value0, packed0 = 4, 4 + n, 4 + 2 * n

local s = redis.call('HMGET', stock, 'mending', 'fence')
if s[1] ~= token then return {'fenced', s[2] or '0'} end
for i = 1, n do
  local name, value = ARGV[name0 + i], ARGV[value0 + i]
  if what == 'answers' then
    local packed = ARGV[packed0 + i]
    local until_ms = string.match(redis.call('HGET', answers, name) or '', '^P%d+:(%d+)$')
    if until_ms and packed ~= '' then redis.call('ZADD', walks, until_ms + margin, packed) end
    redis.call('HSET', answers, name, value)
  elseif value == '0' then
    redis.call('HDEL', buyers, name)
  else
    redis.call('HSET', buyers, name, value)
  end
end
return {'ok', n}
