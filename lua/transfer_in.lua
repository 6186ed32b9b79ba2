#!lua flags=allow-oom
-- Puts units into a segment that left another one, or that are new.
--
-- Closes the race between a step and its repeat: the units arrive once.
--
-- KEYS 1 stock    hash    available, fence, last, mending
--      2 answers  hash    transfer id -> units that arrived
--      3 outbox   stream  one entry
-- ARGV 1 transfer id, 16 bytes   2 hex form of it   3 units   4 token   5 segment, ITEM:SEGMENT, for the messages
-- Returns {'missing', now_ms} | {'mending', now_ms}  nothing was looked at
--         {'fenced', now_ms, fence}                  somebody with a higher token was here
--         {'ok', now_ms, units, available, entry}    so many arrived, now or when it was first asked
-- Keeps  available = units put in - units taken
-- Cost   one HMGET, one HGET, two HSET, one XADD; O(1)

local stock, answers, outbox = KEYS[1], KEYS[2], KEYS[3]
local id, name, units, token, segment = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

-- Tokens are decimal numbers and may be larger than what Lua can count to.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local s = redis.call('HMGET', stock, 'available', 'fence', 'last', 'mending')
local available = tonumber(s[1])
if not available then return {'missing', now} end
if s[4] then return {'mending', now} end
local known = string.match(redis.call('HGET', answers, id) or '', '^I(%d+)$')
if known then return {'ok', now, tonumber(known), available, s[3]} end
if less(token, s[2]) then return {'fenced', now, s[2]} end

local entry = redis.call('XADD', outbox, '*', 'k', 'in', 'i', name, 'u', units, 't', token)
redis.call('HSET', stock, 'available', available + units, 'fence', token, 'last', entry)
redis.call('HSET', answers, id, 'I' .. units)
if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
redis.pcall('PUBLISH', 'stockade:returned', segment .. ' ' .. available + units)
return {'ok', now, units, available + units, entry}
