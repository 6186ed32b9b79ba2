#!lua flags=allow-oom
-- Drops the `declined` records that final spillovers left at a segment other than home.
--
-- Closes the race with an order that home has forgotten and that is reserved again: a record is
-- dropped only if the final spillover knew its deadline. A late or repeated call cannot drop the
-- new spillover's record, after which the order could take twice.
--
-- KEYS 1 decisions  hash  order id -> decision
-- ARGV 1 n  orders in the batch
--      then columns of n: order ids, the latest deadlines (ms) that home kept for them
-- Returns the number of records dropped
-- Keeps  `taken` decisions; `declined` decisions with a later deadline
-- Cost   one HMGET, one HDEL; O(n)

local decisions = KEYS[1]
local n = tonumber(ARGV[1])
local id0, until0 = 1, 1 + n

-- The latest deadline of a declined decision.
local DECLINED_UNTIL = '^D%d+:(%d+)'

local known = redis.call('HMGET', decisions, unpack(ARGV, id0 + 1, id0 + n))
local dropped = {}
for i = 1, n do
  local until_ms = string.match(known[i] or '', DECLINED_UNTIL)
  if until_ms and tonumber(until_ms) <= tonumber(ARGV[until0 + i]) then
    dropped[#dropped + 1] = ARGV[id0 + i]
  end
end
if #dropped == 0 then return 0 end
return redis.call('HDEL', decisions, unpack(dropped))
