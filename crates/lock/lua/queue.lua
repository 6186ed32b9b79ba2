#!lua
-- Takes or keeps a place in the queue for a lock, and returns whether it is our turn on this node.
--
-- Closes the race between "who is in front?" and "then I stand behind". The order is Lamport's
-- bakery: a ticket is one above the last that a quorum knows, so a waiter that queues after us has
-- a higher one. Equal tickets are ordered by the names of their waiters, the same on every node.
--
-- KEYS 1 queue    zset  waiters by their tickets
--      2 waiters  zset  waiters by when they count as dead, in ms of this server's clock
-- ARGV 1 waiter   2 ticket; 0 to look only   3 ttl_ms  after which the waiter counts as dead unless it asks again
-- Returns {'accepted', now_us, last_ticket}       the waiter is first; or the call only looks
--         {'queued', now_us, last_ticket, ahead}  so many are
-- Keeps  a waiter that asks in time keeps its place
-- Cost   one range, two ZADD, one ZRANGE, one ZRANK; O(log(waiters) + dead waiters)

local queue, waiters = KEYS[1], KEYS[2]
local waiter, ticket, ttl_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', waiters, '-inf', now_ms, 'LIMIT', 0, 1000)) do
  redis.call('ZREM', queue, dead)
  redis.call('ZREM', waiters, dead)
end
local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or '0'
if ticket == 0 then return {'accepted', now, last} end

redis.call('ZADD', queue, ticket, waiter)
redis.call('ZADD', waiters, now_ms + ttl_ms, waiter)
for _, key in ipairs({queue, waiters}) do
  if redis.call('PTTL', key) < ttl_ms then redis.call('PEXPIRE', key, ttl_ms) end
end
local ahead = redis.call('ZRANK', queue, waiter)
if ahead == 0 then return {'accepted', now, last} end
return {'queued', now, last, ahead}
