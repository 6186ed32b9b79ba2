#!lua
-- Makes spillovers final at home: each order of the batch took its units elsewhere, or every
-- segment of its ring declined it in the given round.
--
-- Closes the race between two attempts of one order that end at the same time: the first one
-- settles it, and the buyer's count is released at most once. From then on home decides every retry
-- alone. It also closes the race with an attempt that has begun a later round and may take: `S` and
-- `N` are refused then. Home may know an earlier round only: a failover lost its last decision, and
-- without an end the order would be declined in the same way for ever.
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
--      then columns of n: order ids, buyer ids, packed orders, outcomes (`S` sold out | `N` given
--      up: not sold out, but nothing waits for it any more | `E` taken elsewhere), places
--      (`EXPIRES_MS:SEGMENT` for `E`, otherwise the round that every segment has declined; ``: 0)
-- Returns {'late', now_ms} | {'repairing', now_ms}
--         {'ok', now_ms, changed, {decision after it ('' if none), ...}}
-- Keeps  only `declined` becomes final, and a final decision never changes; count of a buyer >= 0
-- Cost   O(n log spillovers)

local stock, decisions, buyers, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, deadline, margin = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local id0, buyer0, packed0, outcome0, place0 = 3, 3 + n, 3 + 2 * n, 3 + 3 * n, 3 + 4 * n

-- Kinds of a stored decision, and the form of a declined one (quantity, latest deadline, round if it
-- is not the first). `S` and `N` are kinds, too.
local ELSEWHERE, GIVEN_UP, DECLINED_FORM = 'E', 'N', '^D(%d+):(%d+):?(%d*)$'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end
if redis.call('HGET', stock, 'repairing') then return {'repairing', now} end

local changed, after = 0, {}
for i = 1, n do
  local id, buyer = ARGV[id0 + i], ARGV[buyer0 + i]
  local outcome, place = ARGV[outcome0 + i], ARGV[place0 + i]
  local decision = redis.call('HGET', decisions, id) or ''
  local quantity, until_ms, round = string.match(decision, DECLINED_FORM)
  local declined_by_all = tonumber(place) or 0
  if quantity and (outcome == ELSEWHERE or (tonumber(round) or 0) <= declined_by_all) then
    changed = changed + 1
    if outcome == ELSEWHERE then
      decision = ELSEWHERE .. quantity .. ':' .. place
    else
      decision = outcome .. quantity .. ':' .. until_ms
      -- An order that is reopened begins the round after this one.
      if outcome == GIVEN_UP and declined_by_all > 0 then
        decision = decision .. ':' .. declined_by_all
      end
      local count = redis.call('HINCRBY', buyers, buyer, -quantity)
      if count <= 0 then redis.call('HDEL', buyers, buyer) end
    end
    redis.call('HSET', decisions, id, decision)
    redis.call('ZADD', spillovers, until_ms + margin, ARGV[packed0 + i])
  end
  after[i] = decision
end
return {'ok', now, changed, after}
