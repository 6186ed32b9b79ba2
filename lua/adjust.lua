#!lua flags=allow-oom
-- Gives a halted segment the counter that the ledger has, and opens it again. The entry that this writes is the new anchor.
--
-- Closes the race between looking at a segment and setting it: it is a compare-and-set on the last entry that was looked at, so nothing that came
-- in between is ever overwritten, not even by a failover that undid the halt.
--
-- KEYS 1 stock   hash    all fields
--      2 outbox  stream  one entry
-- ARGV 1 token   2 last outbox id that was looked at   3 available   4 epoch   5 state (open|paused|closed)   6 limit (0: none)
--      7 opens_ms (0: no start)   8 closes_ms (0: no end)   9 hold_ms   10 segments of the item   11 segment, ITEM:SEGMENT, for the messages
--      12 restored  batches that were given back since the halt
-- Returns {'fenced', fence}     it was halted by somebody with another token, or is not halted any more
--         {'moved', last}       something came in between, or a failover has undone a batch
--         {'adjusted', entry}
-- Keeps  every answer
-- Cost   O(1)

local stock, outbox = KEYS[1], KEYS[2]
local token, last, available, epoch, state, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local opens, closes, hold, segments, segment, restored = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12]

local s = redis.call('HMGET', stock, 'mending', 'fence', 'last', 'restored')
if s[1] ~= token or s[2] ~= token then return {'fenced', s[2] or '0'} end
if s[3] ~= last or s[4] ~= restored then return {'moved', s[3]} end

local entry = redis.call('XADD', outbox, '*', 'k', 'adjusted', 'u', available, 'e', epoch, 't', token)
redis.call('HSET', stock, 'available', available, 'limit', limit, 'state', state, 'opens_ms', opens, 'closes_ms', closes,
  'epoch', epoch, 'hold_ms', hold, 'last', entry, 'segments', segments)
redis.call('HDEL', stock, 'mending', 'restored')
redis.pcall('PUBLISH', 'stockade:outbox', segment)
redis.pcall('PUBLISH', 'stockade:returned', segment .. ' ' .. available)
return {'adjusted', entry}
