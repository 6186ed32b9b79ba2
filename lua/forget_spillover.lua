#!lua flags=allow-oom
-- Forgets final spillovers at home, after every other segment of their rings has forgotten them.
--
-- Closes the race with an order that is reserved again: a spillover is forgotten only as it was
-- read, by its due time.
--
-- KEYS 1 decisions   hash  order id -> decision
--      2 spillovers  zset  pending spillovers, by the millisecond at which they fall due
-- ARGV 1 n  spillovers in the batch
--      then columns of n: order ids, packed orders, due times (ms) as they were read
-- Returns {now_ms, forgotten}
-- Keeps  a sold-out or given-up decision until it is due; an `elsewhere` decision as long as the order; a
--        spillover that is not final
-- Cost   O(n log spillovers)

local decisions, spillovers = KEYS[1], KEYS[2]
local n = tonumber(ARGV[1])
local id0, packed0, due0 = 1, 1 + n, 1 + 2 * n

-- Kinds of a stored decision.
local DECLINED, SOLD_OUT, GIVEN_UP = 'D', 'S', 'N'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local forgotten = 0
for i = 1, n do
  local id, packed, due = ARGV[id0 + i], ARGV[packed0 + i], tonumber(ARGV[due0 + i])
  local kind = string.sub(redis.call('HGET', decisions, id) or SOLD_OUT, 1, 1)
  local score = tonumber(redis.call('ZSCORE', spillovers, packed) or '-1')
  if kind ~= DECLINED and score == due and due <= now then
    if kind == SOLD_OUT or kind == GIVEN_UP then redis.call('HDEL', decisions, id) end
    redis.call('ZREM', spillovers, packed)
    forgotten = forgotten + 1
  end
end
return {now, forgotten}
