#!lua flags=allow-oom
-- Extends the lease of an owner that is inside a lock, for all its entries.
--
-- Closes the race between "is this entry still there?" and "then extend it".
--
-- KEYS 1 lock   hash    OWNER is how often it is inside, OWNER/ENTRY is 1 for each
--      2 fence  string  the token of the holder, for as long as its lease lasts
-- ARGV 1 owner   2 ttl_ms of the lock, from now   3 entry
-- Returns {'accepted', now_us}
--         {'gone', now_us}                     the lock is free, or this entry has ended
--         {'held', now_us, '0', remaining_ms}  another owner has it
-- Keeps  a lease never becomes shorter: another entry may have a longer one
-- Cost   TYPE, two HEXISTS, two PTTL, two PEXPIRE; O(1)

local lock, fence = KEYS[1], KEYS[2]
local owner, ttl_ms, entry = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kind = redis.call('TYPE', lock).ok
if kind == 'none' then return {'gone', now} end
if kind ~= 'hash' or redis.call('HEXISTS', lock, owner) == 0 then return {'held', now, '0', redis.call('PTTL', lock)} end
if redis.call('HEXISTS', lock, owner .. '/' .. entry) == 0 then return {'gone', now} end
for _, key in ipairs({lock, fence}) do
  if redis.call('PTTL', key) < ttl_ms then redis.call('PEXPIRE', key, ttl_ms) end
end
return {'accepted', now}
