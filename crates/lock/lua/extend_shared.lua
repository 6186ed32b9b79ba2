#!lua flags=allow-oom
-- Extends the lease of one owner of a shared lock.
--
-- Closes the race between "is the share still there?" and "then extend it". A share that is gone
-- stays gone: an exclusive owner may have had the lock since, and the tokens of other shares say
-- nothing about that.
--
-- KEYS 1 lock        string  'shared', for as long as the longest lease of its owners
--      2 fence       string  the highest token accepted for this name
--      3 generation  string  RUN_ID:FLOOR or RUN_ID:FLOOR:durable, written when this server was admitted
--      4 high_water  string  the highest token accepted for any name; not read
--      5 readers     zset    owners by the end of their leases, in ms of this server's clock
-- ARGV 1 owner     2 token (decimal; not read)
--      3 ttl_ms    of the owner's share, from now
--      4 keep_ms   of the fence, longer than ttl_ms
-- Returns {'accepted', now_us}
--         {'held', now_us, '0', remaining_ms}  an exclusive owner has it
--         {'gone', now_us}                     the share has expired, or the node lost it
--         {'forgot', now_us, run_id}           restarted, wiped or never admitted: no vote
-- Keeps  the lock lasts as long as any share of it
-- Cost   INFO server (7 us), two GET, one ZSCORE, one ZADD, three PEXPIRE; O(log(readers))

local lock, fence, generation, high_water, readers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, ttl_ms, keep_ms = ARGV[1], tonumber(ARGV[3]), ARGV[4]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)
-- A plain search: a pattern would take a microsecond more.
local info = redis.call('INFO', 'server')
local at = string.find(info, 'run_id:', 1, true) + 7
local run_id = string.sub(info, at, at + 39)
local admitted = string.match(redis.call('GET', generation) or '', '^(%x+):%d+:?%l*$')
if admitted ~= run_id then return {'forgot', now, run_id} end

-- A key that is not a string is a lock of another kind, of another owner.
local holder = redis.pcall('GET', lock)
if holder and holder ~= 'shared' then return {'held', now, '0', redis.call('PTTL', lock)} end
local share = holder and redis.call('ZSCORE', readers, owner)
if not share or tonumber(share) <= now_ms then return {'gone', now} end

redis.call('ZADD', readers, now_ms + ttl_ms, owner)
local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIRE', lock, last - now_ms)
redis.call('PEXPIRE', readers, last - now_ms)
redis.call('PEXPIRE', fence, keep_ms)
return {'accepted', now}
