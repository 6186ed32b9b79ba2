#!lua
-- Reopens at home an order that was given up: it is pending again, in the round after the one that
-- every segment has declined. Home declines that round without a look at its units.
--
-- Closes the race between an order that is placed again and the worker that forgets it: the other
-- segments may have forgotten the last round, so they are to be asked in the next one only. The due
-- time changes, so home does not forget the order as it was listed.
--
-- KEYS 1 stock       hash    available, limit, repairing
--      2 decisions   hash    order id -> decision
--      3 buyers      hash    buyer id -> units counted against the limit
--      4 spillovers  zset    pending spillovers, by the millisecond at which they fall due
-- ARGV 1 deadline_ms  by the clock of this server
--      2 order id   3 buyer id   4 quantity   5 packed order
-- Returns {'late', now_ms}       nothing was read
--         {'missing', now_ms}    the segment is not here, or has lost its decisions or its counts
--         {'repairing', now_ms}  the segment is halted for repair: nothing was read
--         {'ok', now_ms, decision after it ('' if none)}; an order that is still given up would
--         raise its buyer above the limit
-- Keeps  every decision but `given up`; count of a buyer <= limit
-- Cost   O(log spillovers)

local stock, decisions, buyers, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local deadline, id, buyer, units = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local packed = ARGV[5]

-- Kind of a declined decision, and the form of one that was given up (quantity, latest deadline,
-- round if it is not the first).
local DECLINED, GIVEN_UP_FORM = 'D', '^N(%d+):(%d+):?(%d*)$'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end
local available, limit, repairing =
  unpack(redis.call('HMGET', stock, 'available', 'limit', 'repairing'))
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
-- The first fields are the placeholders that open_segment leaves.
local has_decisions, decision = unpack(redis.call('HMGET', decisions, '', id))
local has_buyers, count = unpack(redis.call('HMGET', buyers, '', buyer))
if not has_decisions or not has_buyers then return {'missing', now} end

local quantity, until_ms, round = string.match(decision or '', GIVEN_UP_FORM)
local counted = tonumber(count or 0) + units
local within_limit = limit == '0' or counted <= tonumber(limit)
if tonumber(quantity) == units and within_limit then
  local latest = math.max(tonumber(until_ms), deadline)
  local next_round = (tonumber(round) or 0) + 1
  decision = DECLINED .. quantity .. ':' .. latest .. ':' .. next_round
  redis.call('HSET', decisions, id, decision)
  redis.call('HSET', buyers, buyer, counted)
  redis.call('ZADD', spillovers, latest, packed)
end
return {'ok', now, decision or ''}
