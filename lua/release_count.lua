#!lua flags=allow-oom
-- Releases the counts of orders at their buyers' home, when other segments have their units.
--
-- Closes the race between two releases of the same order, and with a spillover that is being
-- finished: the count returns once. It returns before the units do: a crash in between leaves units
-- that are still to be returned, which the ledger knows, and no count without an owner.
--
-- KEYS 1 stock       hash  available, repairing
--      2 decisions   hash  order id -> decision
--      3 buyers      hash  buyer id -> units counted against the limit; line feed and buyer id
--                          -> 1: has released something
--      4 spillovers  zset  pending spillovers, by the millisecond at which they fall due
-- ARGV 1 n          orders in the batch
--      2 margin_ms  time after its last deadline at which a final spillover may be forgotten
--      then columns of n: order ids, buyer ids, packed orders
-- Returns {'missing', now_ms} | {'repairing', now_ms}  nothing was read
--         {'ok', now_ms, released}
-- Keeps  count of a buyer >= 0; a decision that is neither `elsewhere` nor `declined`
-- Cost   O(n log spillovers)

local stock, decisions, buyers, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, margin = tonumber(ARGV[1]), tonumber(ARGV[2])
local id0, buyer0, packed0 = 2, 2 + n, 2 + 2 * n

-- Kinds of a stored decision, and the form of those that release a count (kind, quantity, time).
local DECLINED, RELEASED, COUNTED_FORM = 'D', 'R', '^([ED])(%d+):(%d+)'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local available, repairing = unpack(redis.call('HMGET', stock, 'available', 'repairing'))
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end

local released = 0
for i = 1, n do
  local id, buyer = ARGV[id0 + i], ARGV[buyer0 + i]
  local kind, quantity, until_ms =
    string.match(redis.call('HGET', decisions, id) or '', COUNTED_FORM)
  if kind then
    released = released + 1
    redis.call('HSET', decisions, id, RELEASED .. quantity .. ':' .. now)
    local count = redis.call('HINCRBY', buyers, buyer, -quantity)
    if count <= 0 then redis.call('HDEL', buyers, buyer) end
    -- The order keeps its decision, so a reader of `buyers` must still find its buyer.
    redis.call('HSET', buyers, '\n' .. buyer, 1)
    -- Home had not been notified where the spillover ended. It is final now, and is forgotten like
    -- any other.
    if kind == DECLINED then
      redis.call('ZADD', spillovers, until_ms + margin, ARGV[packed0 + i])
    end
  end
end
return {'ok', now, released}
