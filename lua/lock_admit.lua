#!lua flags=allow-oom
-- Lets a server vote again, above every token that its peers remember.
--
-- Closes the race between "this start of the server has been watched for long enough" and another restart, or another loss of its data.
--
-- KEYS 1 generation  string  RUN_ID:FLOOR, written when this server was admitted
--      2 high_water  string  the highest token accepted for any name
--      3 watch       string  a mark, from when a server that may have forgotten was first seen until it is admitted
-- ARGV 1 run_id  the start that was watched   2 mark  the highest token that any node remembers   3 watched  the mark that it had then
-- Returns {'admitted', now_us}
--         {'forgot', now_us, run_id}  it has restarted since, or lost its data
-- Keeps  the floor of a generation and the high-water mark only rise
-- Cost   INFO server (7 us), one MGET, one or two SET, one DEL; O(1)

local generation, high_water, watch = KEYS[1], KEYS[2], KEYS[3]
local started, mark, watched = ARGV[1], ARGV[2], ARGV[3]

local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A plain search: a pattern would take a microsecond more.
local info = redis.call('INFO', 'server')
local at = string.find(info, 'run_id:', 1, true) + 7
local run_id = string.sub(info, at, at + 39)
if run_id ~= started then return {'forgot', now, run_id} end

local seen = redis.call('MGET', generation, high_water, watch)
local admitted, floor = string.match(seen[1] or '', '^(%x+):(%d+)$')
if admitted ~= run_id and seen[3] ~= watched then return {'forgot', now, run_id} end

floor = floor or '0'
if less(floor, mark) then floor = mark end
redis.call('SET', generation, run_id .. ':' .. floor)
if less(seen[2] or '0', floor) then redis.call('SET', high_water, floor) end
redis.call('DEL', watch)
return {'admitted', now}
