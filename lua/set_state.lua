#!lua flags=allow-oom
-- Opens, pauses or closes a segment, and sets its limit, window and price.
--
-- Closes the race between two changes of the item: the one with the higher epoch stands, in
-- whatever order they arrive.
--
-- KEYS 1 stock   hash    state, limit, opens_ms, closes_ms, epoch, last, price
--      2 outbox  stream  an entry if the epoch is new
-- ARGV 1 state (open|paused|closed)   2 epoch   3 limit (0: none)   4 opens_ms (0: no start)
--      5 closes_ms (0: no end)   6 segment, ITEM:SEGMENT, for the wake-up message
--      7 price (``: the item's first one)
-- Returns {'set' | 'same' | 'stale' | 'missing', epoch}
-- Keeps  available and every decision
-- Cost   O(1)

local stock, outbox = KEYS[1], KEYS[2]
local state, epoch, limit = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local opens, closes, segment, price = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local current = tonumber(redis.call('HGET', stock, 'epoch'))
if not current then return {'missing', 0} end
if epoch == current then return {'same', current} end
if epoch < current then return {'stale', current} end

local entry = redis.call('XADD', outbox, '*', 'k', 'state', 's', state, 'e', epoch)
redis.call('HSET', stock, 'state', state, 'limit', limit, 'opens_ms', opens, 'closes_ms', closes,
  'epoch', epoch, 'last', entry, 'price', price)
redis.pcall('PUBLISH', 'stockade:outbox', segment)
return {'set', epoch}
