#!lua flags=allow-oom
-- Sets the counter of a halted segment to the ledger's value and reopens the segment.
-- The outbox entry that this writes is the segment's new anchor.
--
-- Closes the race between reading a segment and setting it: this is a compare-and-set on the last
-- outbox entry that was read. Nothing that was appended in between is overwritten, not even after a
-- failover that undid the halt. Also closes the race with a settlement of transfers that was decided
-- on before: `left` is new.
--
-- KEYS 1 stock   hash    all fields
--      2 outbox  stream  one entry
-- ARGV 1 token   2 last outbox id that was read   3 available   4 epoch
--      5 state (open|paused|closed)   6 limit (0: none)   7 opens_ms (0: no start)
--      8 closes_ms (0: no end)   9 hold_ms   10 segments of the item
--      11 segment, ITEM:SEGMENT, for the messages   12 restored  batches restored since the halt
--      13 leaving  units that the ledger has in transit from here
--      14 price (``: the item's first one)
-- Returns {'fenced', fence}     halted under another token, or not halted any more
--         {'moved', last}       an entry was appended, or a failover lost a restored batch
--         {'adjusted', entry}
-- Keeps  every decision
-- Cost   O(1)

local stock, outbox = KEYS[1], KEYS[2]
local token, last, available = ARGV[1], ARGV[2], ARGV[3]
local epoch, state, limit = ARGV[4], ARGV[5], ARGV[6]
local opens, closes, hold = ARGV[7], ARGV[8], ARGV[9]
local segments, segment, restored, leaving, price =
  ARGV[10], ARGV[11], ARGV[12], ARGV[13], ARGV[14]

local repairing, fence, last_now, restored_now =
  unpack(redis.call('HMGET', stock, 'repairing', 'fence', 'last', 'restored'))
if repairing ~= token or fence ~= token then return {'fenced', fence or '0'} end
if last_now ~= last or restored_now ~= restored then return {'moved', last_now} end

local entry = redis.call('XADD', outbox, '*', 'k', 'adjusted', 'u', available, 'e', epoch,
  't', token)
redis.call('HSET', stock, 'available', available, 'limit', limit, 'state', state,
  'opens_ms', opens, 'closes_ms', closes, 'epoch', epoch, 'hold_ms', hold, 'last', entry,
  'segments', segments, 'gained', entry, 'leaving', leaving, 'left', entry, 'price', price)
redis.call('HDEL', stock, 'repairing', 'restored')
redis.pcall('PUBLISH', 'stockade:outbox', segment)
redis.pcall('PUBLISH', 'stockade:returned', segment .. ' ' .. available)
return {'adjusted', entry}
