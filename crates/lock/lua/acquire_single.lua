#!lua
-- Gives a lock that one server alone keeps to an owner, under the next token of the server.
--
-- Closes the race between "is it free?" and "then take it", and the one between taking it and counting.
--
-- KEYS 1 lock     string  the owner, for as long as its lease lasts
--      2 counter  string  the last token that this server has given, for any name
--      3 fence    string  the token of the holder, for as long as its lease lasts; that of a redlock on this node stays longer
-- ARGV 1 owner   2 ttl_ms of the lock   3 floor  a token that is known from elsewhere; the next one is above it
-- Returns {'accepted', now_us, token}
--         {'held', now_us, token, remaining_ms}  another owner has it; remaining_ms is -1 for a lock without a lease
--         {'spent', now_us}                      the server has given its last token
-- Keeps  tokens only rise, also above those of a redlock of this name; the same owner gets the same token again
-- Cost   four GET, one INCR, two SET; O(1)

local lock, counter, fence = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl_ms, floor = ARGV[1], ARGV[2], ARGV[3]

-- As strings: as numbers, 2^53 and 2^53 + 1 would be the same token.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A key that is not a string is a lock of another kind, of another owner.
local holder = redis.pcall('GET', lock)
if holder == owner then return {'accepted', now, redis.call('GET', fence) or '0'} end
if holder then return {'held', now, redis.call('GET', fence) or '0', redis.call('PTTL', lock)} end

local last = redis.call('GET', fence) or '0'
if less(floor, last) then floor = last end
if less(redis.call('GET', counter) or '0', floor) then redis.call('SET', counter, floor) end
if redis.call('GET', counter) == '9223372036854775807' then return {'spent', now} end
redis.call('INCR', counter)
local token = redis.call('GET', counter)
redis.call('SET', fence, token, 'PX', ttl_ms)
redis.call('SET', lock, owner, 'PX', ttl_ms)
return {'accepted', now, token}
