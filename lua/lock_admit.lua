#!lua flags=allow-oom
-- Lets a server vote again, above every token that its peers remember.
--
-- Closes the race between "this start of the server has been watched for long enough" and another restart.
--
-- KEYS 1 generation  string  RUN_ID:FLOOR, written when this server was admitted
--      2 high_water  string  the highest token accepted for any name
-- ARGV 1 run_id  the start that was watched   2 mark  the highest token that any node remembers
-- Returns {'admitted', now_us}
--         {'forgot', now_us, run_id}  it has restarted since
-- Keeps  the floor of a generation and the high-water mark only rise
-- Cost   INFO server (7 us), one MGET, one or two SET; O(1)

local generation, high_water = KEYS[1], KEYS[2]
local watched, mark = ARGV[1], ARGV[2]

local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if run_id ~= watched then return {'forgot', now, run_id} end

local seen = redis.call('MGET', generation, high_water)
local floor = string.match(seen[1] or '', '^%x+:(%d+)$') or '0'
if less(floor, mark) then floor = mark end
redis.call('SET', generation, run_id .. ':' .. floor)
if less(seen[2] or '0', floor) then redis.call('SET', high_water, floor) end
return {'admitted', now}
