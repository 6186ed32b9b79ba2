#!lua flags=allow-oom
-- Marks a server that may have forgotten locks, so that whoever waits for it sees if it forgets again.
--
-- Closes the race between "is it marked?" and "then mark it": all who wait have the same mark.
--
-- KEYS 1 watch  string  a mark, from when a server that may have forgotten was first seen until it is admitted
-- ARGV 1 mark   2 stale  a mark from an earlier start of the server; '' for none
-- Returns {'watched', now_us, mark}  the mark that is there
-- Keeps  a mark that is there, unless it is stale
-- Cost   one SET, two GET; O(1)

local watch = KEYS[1]
local mark, stale = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local known = redis.call('GET', watch)
if not known or known == stale then redis.call('SET', watch, mark) end
return {'watched', time[1] * 1000000 + time[2], redis.call('GET', watch)}
