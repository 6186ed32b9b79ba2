#!lua flags=allow-oom
-- Puts units into a segment: units that left another segment, or new ones.
--
-- Closes the race between a step and its repeat: the units arrive once.
--
-- KEYS 1 stock      hash    available, fence, last, repairing, gained
--      2 decisions  hash    transfer id -> units that arrived
--      3 outbox     stream  one entry
-- ARGV 1 transfer id, 16 bytes   2 hex form of it   3 units   4 token
--      5 segment, ITEM:SEGMENT, for the messages
-- Returns {'missing', now_ms} | {'repairing', now_ms}  nothing was read
--         {'fenced', now_ms, fence}                    the segment has seen a higher token
--         {'ok', now_ms, units, available, entry}      units that arrived, now or at the first call
-- Keeps  available = units put in - units taken
-- Cost   one HMGET, one HGET, two HSET, one XADD; O(1)

local stock, decisions, outbox = KEYS[1], KEYS[2], KEYS[3]
local id, name, units, token, segment = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

-- Kind and form of the record of a transfer that arrived here.
local ARRIVED, ARRIVED_FORM = 'I', '^I(%d+)$'

-- Tokens are decimal numbers and may exceed the integers that Lua represents exactly.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local available, fence, last, repairing =
  unpack(redis.call('HMGET', stock, 'available', 'fence', 'last', 'repairing'))
available = tonumber(available)
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
local known = string.match(redis.call('HGET', decisions, id) or '', ARRIVED_FORM)
if known then return {'ok', now, tonumber(known), available, last} end
if less(token, fence) then return {'fenced', now, fence} end

local entry = redis.call('XADD', outbox, '*', 'k', 'in', 'i', name, 'u', units, 't', token)
redis.call('HSET', stock, 'available', available + units, 'fence', token, 'last', entry,
  'gained', entry)
redis.call('HSET', decisions, id, ARRIVED .. units)
if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
redis.pcall('PUBLISH', 'stockade:returned', segment .. ' ' .. available + units)
return {'ok', now, units, available + units, entry}
