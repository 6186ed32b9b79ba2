#!lua
-- Takes up to the requested number of free units out of a segment.
--
-- Closes the race between reading the counter and taking the units, and between a step and its
-- repeat: the units leave once. Until they are known to have arrived they are in `leaving`: a
-- snapshot that misses them would call the item sold out.
--
-- KEYS 1 stock      hash    available, fence, last, repairing, leaving, left
--      2 decisions  hash    transfer id -> units that left
--      3 outbox     stream  one entry
-- ARGV 1 transfer id, 16 bytes   2 hex form of it   3 requested   4 token
--      5 segment, ITEM:SEGMENT, for the wake-up message
-- Returns {'missing', now_ms} | {'repairing', now_ms}  nothing was read
--         {'fenced', now_ms, fence}                    the segment has seen a higher token
--         {'ok', now_ms, units, available, entry}      units that left, now or at the first call
-- Keeps  available >= 0; available + units that left = units put in; available + leaving
-- Cost   one HMGET, one HGET, two HSET, one HINCRBY, one XADD; O(1)

local stock, decisions, outbox = KEYS[1], KEYS[2], KEYS[3]
local id, name, requested, token, segment = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

-- Kind and form of the record of a transfer that left here.
local LEFT, LEFT_FORM = 'O', '^O(%d+)$'

-- Tokens are decimal numbers and may exceed the integers that Lua represents exactly.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local available, fence, last, repairing =
  unpack(redis.call('HMGET', stock, 'available', 'fence', 'last', 'repairing'))
available = tonumber(available)
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
local known = string.match(redis.call('HGET', decisions, id) or '', LEFT_FORM)
if known then return {'ok', now, tonumber(known), available, last} end
if less(token, fence) then return {'fenced', now, fence} end

local units = math.min(available, requested)
local entry = redis.call('XADD', outbox, '*', 'k', 'out', 'i', name, 'u', units, 't', token)
redis.call('HSET', stock, 'available', available - units, 'fence', token, 'last', entry,
  'left', entry)
redis.call('HINCRBY', stock, 'leaving', units)
redis.call('HSET', decisions, id, LEFT .. units)
if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
return {'ok', now, units, available - units, entry}
