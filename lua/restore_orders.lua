#!lua flags=allow-oom
-- Gives a halted segment back what it must remember, as the ledger has it: answers to orders, counts of buyers, and which transfers it made.
--
-- Closes the race with somebody else who mends: only whoever halted the segment last may write. And with asks that are still under way: a walk that
-- had not ended ends by what is written here, and is forgotten no sooner than if it had ended by itself.
--
-- KEYS 1 stock    hash  mending, fence, last, restored
--      2 answers  hash  order id -> answer, transfer id -> units that it moved
--      3 buyers   hash  buyer id -> units counted against the limit; line feed and buyer id -> 1: gave something back
--      4 walks    zset  unfinished walks, by the millisecond at which they fall due
-- ARGV 1 n      pairs in the batch
--      2 token
--      3 what   answers | buyers | transfers
--      4 margin_ms  how long after its last deadline a final walk may be forgotten
--      5 last       outbox id that was looked at: the entry of the halt
--      6 step       1 for the first batch after the halt, 2 for the second
--      then columns of n: ids or fields of `buyers`, answers or counts (0: none) or units that a transfer moved (``: none), and for answers packed orders
--      (`` away from home)
-- Returns {'fenced', fence}  it was halted by somebody with another token, or is not halted any more
--         {'moved', last}    it was halted again, or a failover has undone a batch
--         {'ok', n}
-- Keeps  available
-- Cost   O(n log walks)

local stock, answers, buyers, walks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, token, what, margin, last, step = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local name0, value0, packed0 = 6, 6 + n, 6 + 2 * n

local s = redis.call('HMGET', stock, 'mending', 'fence', 'last', 'restored')
if s[1] ~= token then return {'fenced', s[2] or '0'} end
if s[3] ~= last or tonumber(s[4] or '-1') ~= step - 1 then return {'moved', s[3]} end
for i = 1, n do
  local name, value = ARGV[name0 + i], ARGV[value0 + i]
  if what == 'answers' then
    local packed = ARGV[packed0 + i]
    local until_ms = string.match(redis.call('HGET', answers, name) or '', '^P%d+:(%d+)$')
    if until_ms and packed ~= '' then redis.call('ZADD', walks, until_ms + margin, packed) end
    redis.call('HSET', answers, name, value)
  elseif what == 'transfers' then
    if value == '' then redis.call('HDEL', answers, name) else redis.call('HSET', answers, name, value) end
  elseif value == '0' then
    redis.call('HDEL', buyers, name)
  else
    redis.call('HSET', buyers, name, value)
  end
end
redis.call('HSET', stock, 'restored', step)
return {'ok', n}
