#!lua flags=allow-oom
-- Marks a server that may have forgotten locks, so that whoever waits for it sees if it forgets again.
--
-- Closes the race between "is it marked?" and "then mark it": all who wait have the same mark.
--
-- KEYS 1 watch  string  a mark, from when a server that may have forgotten was first seen until it is admitted
-- ARGV 1 mark
-- Returns {'watched', now_us, mark}  the mark that is there
-- Keeps  a mark that is there
-- Cost   one SET, one GET; O(1)

local watch = KEYS[1]
local mark = ARGV[1]

local time = redis.call('TIME')
redis.call('SET', watch, mark, 'NX')
return {'watched', time[1] * 1000000 + time[2], redis.call('GET', watch)}
