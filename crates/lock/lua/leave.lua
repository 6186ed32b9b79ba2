#!lua flags=allow-oom
-- Removes a waiter from the queue for a lock.
--
-- Closes the race between the two keys of a queue: a waiter is in both or in neither.
--
-- KEYS 1 queue    zset  waiters by their tickets
--      2 waiters  zset  waiters by when they count as dead, in ms of this server's clock
-- ARGV 1 waiter
-- Returns {'accepted', now_us}
-- Keeps  the places of all other waiters
-- Cost   two ZREM; O(log(waiters))

local queue, waiters = KEYS[1], KEYS[2]
local waiter = ARGV[1]

local time = redis.call('TIME')
redis.call('ZREM', queue, waiter)
redis.call('ZREM', waiters, waiter)
return {'accepted', time[1] * 1000000 + time[2]}
