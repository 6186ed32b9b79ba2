#!lua flags=allow-oom
-- Removes a segment of an archived item, and leaves a tombstone in its place. A repeat changes
-- nothing.
--
-- Closes the race with every other script that arrives late. The tombstone has no units, so nothing
-- is taken, released or moved. It has the highest epoch, so the segment is neither opened nor
-- configured again, and the highest fence, so no repair sets units again.
--
-- KEYS 1 stock       hash    all fields; afterwards state, epoch and fence
--      2 decisions   hash    order id -> decision
--      3 buyers      hash    buyer id -> units counted against the limit
--      4 outbox      stream  the anchor
--      5 spillovers  zset    pending spillovers
--      6 replicated  string  what replicas confirm
-- ARGV 1 token   2 epoch of the archived item
-- Returns {'fenced', fence}  the segment has seen a higher token
--         {'newer', epoch}   the segment has a later epoch: it belongs to a sale that goes on
--         {'archived'}
-- Keeps  a tombstone
-- Cost   O(1): the server frees the memory in the background

local stock, decisions, buyers, outbox, spillovers, replicated = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, epoch = ARGV[1], ARGV[2]

-- The highest integer that Lua represents exactly, and the highest token.
local LAST_EPOCH, LAST_FENCE = '9007199254740991', '9223372036854775807'
local ARCHIVED = 'archived'

-- Tokens are decimal numbers and may exceed the integers that Lua represents exactly.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local state, fence, epoch_now = unpack(redis.call('HMGET', stock, 'state', 'fence', 'epoch'))
if state == ARCHIVED then return {'archived'} end
if fence and less(token, fence) then return {'fenced', fence} end
if epoch_now and less(epoch, epoch_now) then return {'newer', epoch_now} end

redis.call('UNLINK', stock)
redis.call('UNLINK', decisions)
redis.call('UNLINK', buyers)
redis.call('UNLINK', outbox)
redis.call('UNLINK', spillovers)
redis.call('UNLINK', replicated)
redis.call('HSET', stock, 'state', ARCHIVED, 'epoch', LAST_EPOCH, 'fence', LAST_FENCE)
return {'archived'}
