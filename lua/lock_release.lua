#!lua flags=allow-oom
-- Frees a lock that is still the owner's, and leaves any other alone.
--
-- Closes the race between "is it still ours?" and "then delete it". A server that has forgotten is asked as well: what it has must go.
--
-- KEYS 1 lock  string  the owner, for as long as its lease lasts
-- ARGV 1 owner   2 channel that is told when the lock is free, and how many listen; '' for none
-- Returns {'accepted', now_us}                it was the owner's, and is free
--         {'gone', now_us}                    nobody has it
--         {'held', now_us, '0', remaining_ms}  another owner has it
-- Keeps  the fence: a token is never given twice
-- Cost   one GET, one DEL, one PUBLISH; O(subscribers)

local lock = KEYS[1]
local owner, channel = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- What is not a string is a lock of another kind, and somebody else's.
local holder = redis.pcall('GET', lock)
if not holder then return {'gone', now} end
if holder ~= owner then return {'held', now, '0', redis.call('PTTL', lock)} end
redis.call('DEL', lock)
-- It is a hint, and a user who may not publish may still release.
if channel ~= '' then redis.pcall('PUBLISH', channel, redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or '') end
return {'accepted', now}
