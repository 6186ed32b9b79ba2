#!lua flags=allow-oom
-- Gives the counts of orders back to their buyers, at home, when other segments have their units.
--
-- Closes the race between two who give the same order back, and with a walk that is being finished: the count returns once. It is given
-- back before the units are: a crash in between leaves units that somebody still has to return, and no count that nobody knows of.
--
-- KEYS 1 stock    hash  mending
--      2 answers  hash  order id -> answer
--      3 buyers   hash  buyer id -> units counted against the limit; line feed and buyer id -> 1: gave something back
--      4 walks    zset  unfinished walks, by the millisecond at which they fall due
-- ARGV 1 n          orders in the batch
--      2 margin_ms  how long after its last deadline a final walk may be forgotten
--      then columns of n: order ids, buyer ids, packed orders
-- Returns {'missing', now_ms} | {'mending', now_ms}  nothing was looked at
--         {'ok', now_ms, given_back}
-- Keeps  count of a buyer >= 0; an answer that is neither `taken elsewhere` nor `passed`
-- Cost   O(n log walks)

local stock, answers, buyers, walks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, margin = tonumber(ARGV[1]), tonumber(ARGV[2])
local id0, buyer0, packed0 = 2, 2 + n, 2 + 2 * n

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local s = redis.call('HMGET', stock, 'available', 'mending')
if not s[1] then return {'missing', now} end
if s[2] then return {'mending', now} end

local given_back = 0
for i = 1, n do
  local id, buyer = ARGV[id0 + i], ARGV[buyer0 + i]
  local kind, quantity, until_ms = string.match(redis.call('HGET', answers, id) or '', '^([EP])(%d+):(%d+)')
  if kind then
    given_back = given_back + 1
    redis.call('HSET', answers, id, 'R' .. quantity .. ':' .. now)
    if redis.call('HINCRBY', buyers, buyer, -quantity) <= 0 then redis.call('HDEL', buyers, buyer) end
    -- The order has an answer for good, and whoever only looks here must not take its buyer for one who has none.
    redis.call('HSET', buyers, '\n' .. buyer, 1)
    -- Nobody had told home how the walk ended. It is final now, and is forgotten like any other.
    if kind == 'P' then redis.call('ZADD', walks, until_ms + margin, ARGV[packed0 + i]) end
  end
end
return {'ok', now, given_back}
