#!lua flags=no-writes
-- Compares home's decisions with orders of the ledger that another segment has or had.
--
-- Closes the race with a failover: the decisions are those of the history that the caller names.
--
-- KEYS 1 stock      hash  available, repairing
--      2 decisions  hash  order id -> decision
-- ARGV 1 n        orders in the batch
--      2 history  the replication id of the server, as it was read before the check
--      then columns of n: order ids, units (1: the order has them; 0: it has ended, and they came
--      back)
-- Returns {'missing'} | {'repairing'}  nothing was read
--         {'moved'}                    the server has another history
--         {'ok', index, ...}           of orders that home does not know, or still counts although
--                                      they have ended
-- Keeps  everything: it only reads
-- Cost   one HMGET; O(n)

local stock, decisions = KEYS[1], KEYS[2]
local n, history = tonumber(ARGV[1]), ARGV[2]
local id0, units0 = 2, 2 + n

-- Kind of a stored decision: another segment has the order, and home counts it.
local ELSEWHERE = 'E'

local available, repairing = unpack(redis.call('HMGET', stock, 'available', 'repairing'))
if not available then return {'missing'} end
if repairing then return {'repairing'} end
local current = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
if current ~= history then return {'moved'} end

local known = redis.call('HMGET', decisions, unpack(ARGV, id0 + 1, id0 + n))
local reply = {'ok'}
for i = 1, n do
  local decision = known[i]
  local ended = ARGV[units0 + i] == '0'
  if not decision or (ended and string.sub(decision, 1, 1) == ELSEWHERE) then
    reply[#reply + 1] = i - 1
  end
end
return reply
