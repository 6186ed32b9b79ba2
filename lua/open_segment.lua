#!lua
-- Creates a segment with its share of the stock. A repeat changes nothing.
--
-- Closes the race between two creators: the second one finds the segment and leaves it as it is. A new
-- segment has declined nothing, so it is marked as checked (`mark_checked`).
--
-- KEYS 1 stock       hash    all fields
--      2 decisions   hash    order id -> decision
--      3 buyers      hash    buyer id -> units counted against the limit
--      4 outbox      stream  its first entry
--      5 spillovers  zset    pending spillovers
-- ARGV 1 units   2 limit (0: none)   3 state (open|paused|closed)   4 opens_ms (0: no start)
--      5 closes_ms (0: no end)   6 epoch   7 hold_ms   8 segments of the item
--      9 segment, ITEM:SEGMENT, for the wake-up message   10 price (``: the item's first one)
-- Returns {'opened' | 'exists', epoch, available, last outbox id}
-- Keeps  a segment that exists
-- Cost   O(1)

local stock, decisions, buyers, outbox, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local units, limit, state, opens, closes = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local epoch, hold, segments, segment, price = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]

local epoch_now, available, last =
  unpack(redis.call('HMGET', stock, 'epoch', 'available', 'last'))
if epoch_now then return {'exists', tonumber(epoch_now), tonumber(available), last} end

local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
local entry = redis.call('XADD', outbox, '*', 'k', 'opened', 'u', units, 'e', epoch)
redis.call('HSET', stock, 'available', units, 'limit', limit, 'state', state, 'opens_ms', opens,
  'closes_ms', closes, 'epoch', epoch, 'fence', 0, 'hold_ms', hold, 'last', entry,
  'segments', segments, 'gained', entry, 'leaving', 0, 'left', entry, 'checked', history or '',
  'price', price)
-- While a cluster migrates a slot, it refuses a script of which only some keys exist (TRYAGAIN).
-- Therefore all of them exist from the start. A key without its placeholder was lost and recreated.
redis.call('HSET', decisions, '', '')
redis.call('HSET', buyers, '', 0)
redis.call('ZADD', spillovers, '+inf', '')
redis.pcall('PUBLISH', 'stockade:outbox', segment)
return {'opened', tonumber(epoch), tonumber(units), entry}
