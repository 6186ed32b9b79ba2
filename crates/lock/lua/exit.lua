#!lua flags=allow-oom
-- Ends one entry of an owner, and frees the lock if that was the last.
--
-- Closes the race between "is another entry inside?" and "then delete it".
--
-- KEYS 1 lock   hash    OWNER is how often it is inside, OWNER/ENTRY is 1 for each
--      2 fence  string  the token of the holder, for as long as its lease lasts
-- ARGV 1 owner   2 entry   3 channel on which the release is published with the number of subscribers
--      4 Redisson's channel for the same
-- Returns {'accepted', now_us}                 the entry was there, and is not any more
--         {'gone', now_us}                     it was not
--         {'held', now_us, '0', remaining_ms}  another owner has it
-- Keeps  all other entries
-- Cost   TYPE, HEXISTS, HDEL, HINCRBY, two PUBLISH; O(subscribers)

local lock, fence = KEYS[1], KEYS[2]
local owner, entry, channel, channel_of_redisson = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kind = redis.call('TYPE', lock).ok
if kind == 'none' then return {'gone', now} end
if kind ~= 'hash' or redis.call('HEXISTS', lock, owner) == 0 then return {'held', now, '0', redis.call('PTTL', lock)} end
if redis.call('HDEL', lock, owner .. '/' .. entry) == 0 then return {'gone', now} end
if redis.call('HINCRBY', lock, owner, -1) <= 0 then
  redis.call('DEL', lock, fence)
  -- They are hints, and a user who may not publish may still release. '0' is Redisson's word for it.
  redis.pcall('PUBLISH', channel, redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or '')
  redis.pcall('PUBLISH', channel_of_redisson, '0')
end
return {'accepted', now}
