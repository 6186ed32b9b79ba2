#!lua flags=allow-oom
-- Opens, pauses or closes a segment.
--
-- Closes the race between two changes of state: the one with the higher epoch stands, in whatever order they arrive.
--
-- KEYS 1 stock   hash    state, epoch, last
--      2 outbox  stream  an entry if the state changes
-- ARGV 1 state (open|paused|closed)  2 epoch  3 segment, ITEM:SEGMENT, for the wake-up message
-- Returns {'set' | 'same' | 'stale' | 'missing', epoch}
-- Keeps  available and every answer
-- Cost   O(1)

local stock, outbox = KEYS[1], KEYS[2]
local state, epoch, segment = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local current = tonumber(redis.call('HGET', stock, 'epoch'))
if not current then return {'missing', 0} end
if epoch == current then return {'same', current} end
if epoch < current then return {'stale', current} end

local entry = redis.call('XADD', outbox, '*', 'k', 'state', 's', state, 'e', epoch)
redis.call('HSET', stock, 'state', state, 'epoch', epoch, 'last', entry)
redis.call('PUBLISH', 'stockade:outbox', segment)
return {'set', epoch}
