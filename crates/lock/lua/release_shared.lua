#!lua flags=allow-oom
-- Ends an owner's share of a lock, and frees the lock if that was the last.
--
-- Closes the race between "is this the last share?" and "then delete it". This also runs on a server
-- that may not vote: any key that it has must go.
--
-- KEYS 1 lock     string  'shared', for as long as the longest lease of its owners
--      2 readers  zset    owners by the end of their leases, in ms of this server's clock
-- ARGV 1 owner   2 channel on which the release is published with the number of subscribers; '' for none
-- Returns {'accepted', now_us}                  the share was there, and is not any more
--         {'gone', now_us}                      it was not
--         {'held', now_us, '0', remaining_ms}   an exclusive owner has the lock
-- Keeps  the fence: a token is never given twice; the lock lasts as long as any share of it
-- Cost   one GET, two removals, one ZRANGE, two writes; O(log(readers) + expired readers)

local lock, readers = KEYS[1], KEYS[2]
local owner, channel = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)
-- A key that is not a string is a lock of another kind, of another owner.
local holder = redis.pcall('GET', lock)
if not holder then return {'gone', now} end
if holder ~= 'shared' then return {'held', now, '0', redis.call('PTTL', lock)} end

if redis.call('ZREM', readers, owner) == 0 then return {'gone', now} end
redis.call('ZREMRANGEBYSCORE', readers, '-inf', now_ms)
local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
if last then
  redis.call('PEXPIRE', lock, last - now_ms)
else
  redis.call('DEL', lock)
  -- It is a hint, and a user who may not publish may still release.
  if channel ~= '' then redis.pcall('PUBLISH', channel, redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or '') end
end
return {'accepted', now}
