#!lua flags=allow-oom
-- Extends a holder's lease.
--
-- A node that has lost the lock gets it back, unless another owner has had it since.
--
-- Closes the race between "is it still ours, and was there no later owner?" and "then extend it".
--
-- KEYS 1 lock        string  the owner, for as long as its lease lasts
--      2 fence       string  the highest token accepted for this name
--      3 generation  string  RUN_ID:FLOOR or RUN_ID:FLOOR:durable, written when this server was admitted
--      4 high_water  string  the highest token accepted for any name
-- ARGV 1 owner     2 token (decimal)
--      3 ttl_ms    of the lock, from now
--      4 keep_ms   of the fence, longer than ttl_ms
-- Returns {'accepted', now_us}
--         {'held', now_us, fence, remaining_ms}  another owner has it
--         {'low', now_us, fence}                 there was a later owner
--         {'forgot', now_us, run_id}             restarted, wiped or never admitted: no vote
-- Keeps  fences only rise; a lease never becomes shorter than the last request set it
-- Cost   INFO server (7 us), one MGET, one GET, two PEXPIRE; two or three SET when it heals; O(1)

local lock, fence, generation, high_water = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, token, ttl_ms, keep_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- As strings: as numbers, 2^53 and 2^53 + 1 would be the same token.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A plain search: a pattern would take a microsecond more.
local info = redis.call('INFO', 'server')
local at = string.find(info, 'run_id:', 1, true) + 7
local run_id = string.sub(info, at, at + 39)
local seen = redis.call('MGET', fence, generation, high_water)
local admitted, floor = string.match(seen[2] or '', '^(%x+):(%d+):?%l*$')
if admitted ~= run_id then return {'forgot', now, run_id} end

local mark = seen[3] or '0'
local highest = seen[1] or mark
if less(highest, floor) then highest = floor end

-- A key that is not a string is a lock of another kind, of another owner.
local holder = redis.pcall('GET', lock)
if holder and holder ~= owner then return {'held', now, highest, redis.call('PTTL', lock)} end
if holder and seen[1] == token then
  redis.call('PEXPIRE', lock, ttl_ms)
  redis.call('PEXPIRE', fence, keep_ms)
  return {'accepted', now}
end
if less(token, highest) then return {'low', now, highest} end

redis.call('SET', fence, token, 'PX', keep_ms)
redis.call('SET', lock, owner, 'PX', ttl_ms)
if less(mark, token) then redis.call('SET', high_water, token) end
return {'accepted', now}
