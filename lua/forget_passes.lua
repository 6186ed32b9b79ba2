#!lua flags=allow-oom
-- Drops the `passed` records that final walks left at a segment other than home.
--
-- Closes the race with an order that home has forgotten and that walks anew: only a record whose deadline the final walk knew is
-- dropped, so a late or repeated call cannot take the new walk's record away (it could then take twice).
--
-- KEYS 1 answers  hash  order id -> answer
-- ARGV 1 n  orders in the batch
--      then columns of n: order ids, the latest deadlines (ms) that home remembered for them
-- Returns the number of records dropped
-- Keeps  taken answers; passed answers with a later deadline
-- Cost   one HMGET, one HDEL; O(n)

local answers = KEYS[1]
local n = tonumber(ARGV[1])

local known = redis.call('HMGET', answers, unpack(ARGV, 2, 1 + n))
local over = {}
for i = 1, n do
  local until_ms = string.match(known[i] or '', '^P%d+:(%d+)$')
  if until_ms and tonumber(until_ms) <= tonumber(ARGV[1 + n + i]) then over[#over + 1] = ARGV[1 + i] end
end
if #over == 0 then return 0 end
return redis.call('HDEL', answers, unpack(over))
