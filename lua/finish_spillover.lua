#!lua
-- Makes spillovers final at home: each order of the batch took its units elsewhere, or every
-- segment of its ring declined it.
--
-- Closes the race between two attempts of one order that end at the same time: the first one
-- settles it, and the buyer's count is released at most once. From then on home decides every retry
-- alone.
--
-- KEYS 1 stock       hash    repairing
--      2 decisions   hash    order id -> decision
--      3 buyers      hash    buyer id -> units counted against the limit
--      4 spillovers  zset    pending spillovers, by the millisecond at which they fall due
-- ARGV 1 n            spillovers in the batch
--      2 deadline_ms  by the clock of this server. Later, the batch is refused: the order may have
--                     been forgotten and reserved again, and this would end the new spillover with
--                     the old one's outcome
--      3 margin_ms    time after its last deadline at which a final spillover may be forgotten
--      then columns of n: order ids, buyer ids, packed orders, outcomes (`S` sold out | `E` taken
--      elsewhere), places (`EXPIRES_MS:SEGMENT` for `E`)
-- Returns {'late', now_ms} | {'repairing', now_ms} | {'ok', now_ms, changed}
-- Keeps  only `declined` becomes final, and a final decision never changes; count of a buyer >= 0
-- Cost   O(n log spillovers)

local stock, decisions, buyers, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, deadline, margin = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local id0, buyer0, packed0, outcome0, place0 = 3, 3 + n, 3 + 2 * n, 3 + 3 * n, 3 + 4 * n

-- Kinds of a stored decision, and the form of a declined one (quantity, latest deadline).
local SOLD_OUT, ELSEWHERE, DECLINED_FORM = 'S', 'E', '^D(%d+):(%d+)$'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end
if redis.call('HGET', stock, 'repairing') then return {'repairing', now} end

local changed = 0
for i = 1, n do
  local id, buyer = ARGV[id0 + i], ARGV[buyer0 + i]
  local quantity, until_ms =
    string.match(redis.call('HGET', decisions, id) or '', DECLINED_FORM)
  if quantity then
    changed = changed + 1
    if ARGV[outcome0 + i] == SOLD_OUT then
      redis.call('HSET', decisions, id, SOLD_OUT .. quantity .. ':' .. until_ms)
      local count = redis.call('HINCRBY', buyers, buyer, -quantity)
      if count <= 0 then redis.call('HDEL', buyers, buyer) end
    else
      redis.call('HSET', decisions, id, ELSEWHERE .. quantity .. ':' .. ARGV[place0 + i])
    end
    redis.call('ZADD', spillovers, until_ms + margin, ARGV[packed0 + i])
  end
end
return {'ok', now, changed}
