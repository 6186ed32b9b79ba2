#!lua
-- Takes units out of a segment: as many of those that are asked for as nobody has.
--
-- Closes the race between "how many are there?" and "then take them", and between a step and its repeat: the units leave once.
--
-- KEYS 1 stock    hash    available, fence, last, mending
--      2 answers  hash    transfer id -> units that left
--      3 outbox   stream  one entry
-- ARGV 1 transfer id, 16 bytes   2 hex form of it   3 asked   4 token   5 segment, ITEM:SEGMENT, for the wake-up message
-- Returns {'missing', now_ms} | {'mending', now_ms}  nothing was looked at
--         {'fenced', now_ms, fence}                  somebody with a higher token was here
--         {'ok', now_ms, units, available, entry}    so many left, now or when it was first asked
-- Keeps  available >= 0; available + units that left = units put in
-- Cost   one HMGET, one HGET, two HSET, one XADD; O(1)

local stock, answers, outbox = KEYS[1], KEYS[2], KEYS[3]
local id, name, asked, token, segment = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

-- Tokens are decimal numbers and may be larger than what Lua can count to.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local s = redis.call('HMGET', stock, 'available', 'fence', 'last', 'mending')
local available = tonumber(s[1])
if not available then return {'missing', now} end
if s[4] then return {'mending', now} end
local known = string.match(redis.call('HGET', answers, id) or '', '^O(%d+)$')
if known then return {'ok', now, tonumber(known), available, s[3]} end
if less(token, s[2]) then return {'fenced', now, s[2]} end

local units = math.min(available, asked)
local entry = redis.call('XADD', outbox, '*', 'k', 'out', 'i', name, 'u', units, 't', token)
redis.call('HSET', stock, 'available', available - units, 'fence', token, 'last', entry)
redis.call('HSET', answers, id, 'O' .. units)
if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
return {'ok', now, units, available - units, entry}
