#!lua flags=allow-oom
-- Marks a server that does not vote, so that clients notice if it loses its data once more.
--
-- Closes the race between "is it marked?" and "then mark it": all clients that wait have the same
-- mark. For a fresh start it also closes the race with the admission and the votes of another
-- client.
--
-- KEYS 1 watch       string  RUN_ID:MICROSECONDS:MARK, from the first look until the admission
--      2 generation  string  RUN_ID:FLOOR[:durable], written at the admission
--      3 high_water  string  the highest token accepted for any name
-- ARGV 1 mark   '@' in it becomes the time of this server, in microseconds
--      2 stale  a mark from an earlier run of the server; '' for none
--      3 if_blank  'yes': only a server without any of the three keys is marked
-- Returns {'watched', now_us, mark}  the mark that is there; '' for none
-- Keeps  a mark that is there, unless it is stale
-- Cost   one EXISTS, one SET, two GET; O(1)

local watch, generation, high_water = KEYS[1], KEYS[2], KEYS[3]
local mark, stale, if_blank = ARGV[1], ARGV[2], ARGV[3]

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
-- The wait starts here. A mark with the time of the look before it would shorten the wait by as long
-- as the command was delayed. `%.0f`: Lua's own conversion keeps only 14 digits.
mark = string.gsub(mark, '@', string.format('%.0f', now_us), 1)

local known = redis.call('GET', watch)
local may_mark = not known or known == stale
if if_blank == 'yes' then may_mark = redis.call('EXISTS', watch, generation, high_water) == 0 end
if may_mark then redis.call('SET', watch, mark) end
return {'watched', now_us, redis.call('GET', watch) or ''}
