#!lua flags=allow-oom
-- Extends the lease of a lock that one server alone keeps.
--
-- Closes the race between "is it still ours?" and "then extend it".
--
-- KEYS 1 lock   string  the owner, for as long as its lease lasts
--      2 fence  string  the token of the holder, for as long as its lease lasts
-- ARGV 1 owner   2 ttl_ms of the lock, from now
-- Returns {'accepted', now_us}
--         {'gone', now_us}                    the lock is free
--         {'held', now_us, '0', remaining_ms}  another owner has it
-- Keeps  the holder and its token
-- Cost   one GET, two PEXPIRE; O(1)

local lock, fence = KEYS[1], KEYS[2]
local owner, ttl_ms = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A key that is not a string is a lock of another kind, of another owner.
local holder = redis.pcall('GET', lock)
if not holder then return {'gone', now} end
if holder ~= owner then return {'held', now, '0', redis.call('PTTL', lock)} end
redis.call('PEXPIRE', lock, ttl_ms)
redis.call('PEXPIRE', fence, ttl_ms)
return {'accepted', now}
