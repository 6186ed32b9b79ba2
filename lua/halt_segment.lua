#!lua flags=allow-oom
-- Halts a segment for whoever mends it. Until its counter has been set it refuses everything that would change it.
--
-- Closes the race between two who mend: the higher token has it. A segment that is gone is made anew, empty and halted. If a part of what it remembers is
-- gone, it forgets the rest of it: answers without the walks that they belong to, or counts without the answers, would never be put right.
--
-- KEYS 1 stock    hash    fence, last, mending, restored
--      2 answers  hash    order id -> answer
--      3 buyers   hash    buyer id -> units counted against the limit
--      4 outbox   stream  one entry
--      5 walks    zset    unfinished walks
-- ARGV 1 token
-- Returns {'fenced', fence}          somebody with a higher token was here
--         {'halted', available, entry}
-- Keeps  available; every answer, count and walk, unless some are gone
-- Cost   O(1)

local stock, answers, buyers, outbox, walks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token = ARGV[1]

-- Tokens are decimal numbers and may be larger than what Lua can count to.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local s = redis.call('HMGET', stock, 'fence', 'available')
if s[1] and less(token, s[1]) then return {'fenced', s[1]} end

local entry = redis.call('XADD', outbox, '*', 'k', 'halted', 't', token)
if not s[1] then
  redis.call('HSET', stock, 'available', 0, 'limit', 0, 'state', 'paused', 'opens_ms', 0, 'closes_ms', 0, 'epoch', 0, 'hold_ms', 0, 'segments', 0)
end
local whole = redis.call('HEXISTS', answers, '') == 1 and redis.call('HEXISTS', buyers, '') == 1 and redis.call('ZSCORE', walks, '')
if not whole then redis.call('UNLINK', answers, buyers, walks) end
redis.call('HSET', answers, '', '')
redis.call('HSET', buyers, '', 0)
redis.call('ZADD', walks, '+inf', '')
redis.call('HSET', stock, 'fence', token, 'mending', token, 'restored', 0, 'last', entry)
return {'halted', tonumber(s[2] or 0), entry}
