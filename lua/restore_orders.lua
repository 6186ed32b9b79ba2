#!lua flags=allow-oom
-- Restores the memory of a halted segment from the ledger: decisions, counts of buyers, and which
-- transfers it made.
--
-- Closes the race with another repairer: only the one that halted the segment last may write.
-- Closes the race with orders that are still under way: a spillover that had not ended ends by what
-- is written here, and is forgotten no sooner than if it had ended by itself.
--
-- KEYS 1 stock       hash  repairing, fence, last, restored
--      2 decisions   hash  order id -> decision, transfer id -> units that it moved
--      3 buyers      hash  buyer id -> units counted against the limit; line feed and buyer id
--                          -> 1: has released something
--      4 spillovers  zset  pending spillovers, by the millisecond at which they fall due
-- ARGV 1 n      pairs in the batch
--      2 token
--      3 what   decisions | buyers | transfers
--      4 margin_ms  time after its last deadline at which a final spillover may be forgotten
--      5 last       outbox id that was read: the entry of the halt
--      6 step       1 for the first batch after the halt, 2 for the second
--      then columns of n: ids or fields of `buyers`; decisions, counts (0: none), or units that a
--      transfer moved (``: none); for decisions also packed orders (`` away from home)
-- Returns {'fenced', fence}  halted under another token, or not halted any more
--         {'moved', last}    halted again, or a failover lost a batch
--         {'ok', n}
-- Keeps  available
-- Cost   O(n log spillovers)

local stock, decisions, buyers, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, token, what, margin = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local last, step = ARGV[5], tonumber(ARGV[6])
local name0, value0, packed0 = 6, 6 + n, 6 + 2 * n

-- The latest deadline of a declined decision.
local DECLINED_UNTIL = '^D%d+:(%d+)'

local repairing, fence, last_now, restored =
  unpack(redis.call('HMGET', stock, 'repairing', 'fence', 'last', 'restored'))
if repairing ~= token then return {'fenced', fence or '0'} end
if last_now ~= last or tonumber(restored or '-1') ~= step - 1 then return {'moved', last_now} end
for i = 1, n do
  local name, value = ARGV[name0 + i], ARGV[value0 + i]
  if what == 'decisions' then
    local packed = ARGV[packed0 + i]
    local until_ms = string.match(redis.call('HGET', decisions, name) or '', DECLINED_UNTIL)
    if until_ms and packed ~= '' then redis.call('ZADD', spillovers, until_ms + margin, packed) end
    redis.call('HSET', decisions, name, value)
  elseif what == 'transfers' then
    if value == '' then
      redis.call('HDEL', decisions, name)
    else
      redis.call('HSET', decisions, name, value)
    end
  elseif value == '0' then
    redis.call('HDEL', buyers, name)
  else
    redis.call('HSET', buyers, name, value)
  end
end
redis.call('HSET', stock, 'restored', step)
return {'ok', n}
