#!lua flags=allow-oom
-- Halts a segment for repair. Until its counter has been set it refuses every change.
--
-- Closes the race between two repairers: the higher token wins. A segment that is gone is created
-- empty and halted. If one of its hashes or its list is gone, the others are dropped as well:
-- decisions without their spillovers, or counts without their decisions, could never be corrected. The
-- mark of the home check goes with them: the ledger may not have all that they had.
-- A repairer drops them itself if the ledger was restored from a backup: they have orders that the
-- ledger has lost.
--
-- KEYS 1 stock       hash    fence, last, repairing, restored, checked
--      2 decisions   hash    order id -> decision
--      3 buyers      hash    buyer id -> units counted against the limit
--      4 outbox      stream  one entry
--      5 spillovers  zset    pending spillovers
-- ARGV 1 token   2 memory: `drop` drops decisions, counts and spillovers; `keep` keeps them
-- Returns {'fenced', fence}          the segment has seen a higher token
--         {'halted', available, entry}
-- Keeps  available; every decision, count and spillover, unless some are gone or all are to be dropped
-- Cost   O(1)

local stock, decisions, buyers, outbox, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, memory = ARGV[1], ARGV[2]

-- Tokens are decimal numbers and may exceed the integers that Lua represents exactly.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local fence, available = unpack(redis.call('HMGET', stock, 'fence', 'available'))
if fence and less(token, fence) then return {'fenced', fence} end

local entry = redis.call('XADD', outbox, '*', 'k', 'halted', 't', token)
if not fence then
  redis.call('HSET', stock, 'available', 0, 'limit', 0, 'state', 'paused', 'opens_ms', 0,
    'closes_ms', 0, 'price', '', 'epoch', 0, 'hold_ms', 0, 'segments', 0, 'gained', entry,
    'leaving', 0, 'left', entry)
end
local whole = redis.call('HEXISTS', decisions, '') == 1 and redis.call('HEXISTS', buyers, '') == 1
  and redis.call('ZSCORE', spillovers, '')
if memory == 'drop' or not whole then
  redis.call('UNLINK', decisions, buyers, spillovers)
  redis.call('HDEL', stock, 'checked')
end
redis.call('HSET', decisions, '', '')
redis.call('HSET', buyers, '', 0)
redis.call('ZADD', spillovers, '+inf', '')
redis.call('HSET', stock, 'fence', token, 'repairing', token, 'restored', 0, 'last', entry)
return {'halted', tonumber(available or 0), entry}
