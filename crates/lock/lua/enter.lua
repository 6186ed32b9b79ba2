#!lua
-- Lets an owner into a lock that it may hold several times, in the way of Redisson: a hash that counts each owner's entries.
--
-- Closes the race between "is it free or ours?" and "then count one more", and the one with a repeated request: every entry has a name of
-- its own and is counted once.
--
-- KEYS 1 lock     hash    OWNER is how often it is inside, OWNER/ENTRY is 1 for each
--      2 counter  string  the last token that this server has given, for any name
--      3 fence    string  the token of the holder, for as long as its lease lasts; that of a redlock on this node stays longer
-- ARGV 1 owner   2 ttl_ms of the lock, for all entries   3 floor  the next token is above it   4 entry
-- Returns {'accepted', now_us, token}            the token of the first entry
--         {'held', now_us, token, remaining_ms}  another owner has it; remaining_ms is -1 for a lock without a lease
--         {'spent', now_us}                      the server has given its last token
-- Keeps  tokens only rise, also above those of a redlock of this name; all entries have the same token; a lease never becomes shorter
-- Cost   TYPE, HEXISTS, two HINCRBY, two PEXPIRE; INCR and SET for the first; O(1)

local lock, counter, fence = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl_ms, floor, entry = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

-- As strings: as numbers, 2^53 and 2^53 + 1 would be the same token.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kind = redis.call('TYPE', lock).ok
local ours = kind == 'hash' and redis.call('HEXISTS', lock, owner) == 1
if kind ~= 'none' and not ours then return {'held', now, redis.call('GET', fence) or '0', redis.call('PTTL', lock)} end

local token = ours and redis.call('GET', fence)
if not token then
  local last = redis.call('GET', fence) or '0'
  if less(floor, last) then floor = last end
  if less(redis.call('GET', counter) or '0', floor) then redis.call('SET', counter, floor) end
  if redis.call('GET', counter) == '9223372036854775807' then return {'spent', now} end
  redis.call('INCR', counter)
  token = redis.call('GET', counter)
  redis.call('SET', fence, token, 'PX', ttl_ms)
end
if redis.call('HSETNX', lock, owner .. '/' .. entry, 1) == 1 then redis.call('HINCRBY', lock, owner, 1) end
for _, key in ipairs({lock, fence}) do
  if redis.call('PTTL', key) < ttl_ms then redis.call('PEXPIRE', key, ttl_ms) end
end
return {'accepted', now, token}
