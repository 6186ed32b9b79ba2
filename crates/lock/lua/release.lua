#!lua flags=allow-oom
-- Frees a lock that is still the owner's, and leaves any other alone.
--
-- Closes the race between "is it still ours?" and "then delete it". This also runs
-- on a server that may not vote: any key that it has must go.
--
-- KEYS 1 lock  string  the owner, for as long as its lease lasts
-- ARGV 1 owner   2 channel on which the release is published with the number of subscribers; '' for none
-- Returns {'accepted', now_us}                it was the owner's, and is free
--         {'gone', now_us}                    the lock is free
--         {'held', now_us, '0', remaining_ms}  another owner has it
-- Keeps  the fence: no token is ever given twice
-- Cost   one GET, one DEL, one PUBLISH; O(subscribers)

local lock = KEYS[1]
local owner, channel = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A key that is not a string is a lock of another kind, of another owner.
local holder = redis.pcall('GET', lock)
if not holder then return {'gone', now} end
if holder ~= owner then return {'held', now, '0', redis.call('PTTL', lock)} end
redis.call('DEL', lock)
-- It is a hint, and a user who may not publish may still release.
if channel ~= '' then redis.pcall('PUBLISH', channel, redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or '') end
return {'accepted', now}
