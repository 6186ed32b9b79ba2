#!lua flags=allow-oom
-- Lets this run of a server vote.
--
-- Closes the race between "this run of the server may vote" and another restart, or another loss
-- of its data.
--
-- KEYS 1 generation  string  RUN_ID:FLOOR[:durable], written at the admission
--      2 high_water  string  the highest token accepted for any name
--      3 watch       string  RUN_ID:MICROSECONDS:MARK, from the first look until the admission
-- ARGV 1 run_id    the run that may vote
--      2 floor     a token that this server must vote above; 0 for none
--      3 evidence  the watch or the generation on which the caller decided; '' if this run has
--                  been admitted
--      4 durable   'yes': its votes survive a restart from here on; 'no': they do not; '': unknown
-- Returns {'admitted', now_us}
--         {'forgot', now_us, run_id}  the server has restarted since, or has lost the evidence
-- Keeps  the floor of a generation and the high-water mark only rise
-- Cost   INFO server (7 us), one MGET, one or two SET, one DEL; O(1)

local generation, high_water, watch = KEYS[1], KEYS[2], KEYS[3]
local run_id, floor, evidence, durable = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- As strings: as numbers, 2^53 and 2^53 + 1 would be the same token.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A plain search: a pattern would take a microsecond more.
local info = redis.call('INFO', 'server')
local at = string.find(info, 'run_id:', 1, true) + 7
local current_run = string.sub(info, at, at + 39)
if current_run ~= run_id then return {'forgot', now, current_run} end

local seen = redis.call('MGET', generation, high_water, watch)
local known_generation, known_high_water, known_watch = seen[1], seen[2], seen[3]
local admitted_run, known_floor, known_durable = string.match(known_generation or '', '^(%x+):(%d+):?(%l*)$')
local is_admitted = admitted_run == run_id
local has_evidence = evidence ~= '' and (known_watch == evidence or known_generation == evidence)
if not is_admitted and not has_evidence then return {'forgot', now, run_id} end

-- An earlier run was durable or not; that says nothing about this one.
if durable == '' and is_admitted and known_durable == 'durable' then durable = 'yes' end
if known_floor and less(floor, known_floor) then floor = known_floor end
redis.call('SET', generation, run_id .. ':' .. floor .. (durable == 'yes' and ':durable' or ''))
if less(known_high_water or '0', floor) then redis.call('SET', high_water, floor) end
redis.call('DEL', watch)
return {'admitted', now}
