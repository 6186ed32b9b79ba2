#!lua flags=no-writes
-- Shows a segment as it is at one moment.
--
-- Closes the race between reading the counter and reading the entries that led to it.
--
-- KEYS 1 stock    hash    all fields
--      2 answers  hash    order id -> answer
--      3 buyers   hash    buyer id -> units counted against the limit
--      4 outbox   stream  the entries not yet recorded
--      5 walks    zset    unfinished walks
-- ARGV 1 from  an outbox id: also list the entries from there on, inclusive; `-`: from the beginning; ``: list none
-- Returns {'missing'} | {'ok', available, state, epoch, last, limit, answers, buyers, outbox length, walks, opens_ms, closes_ms, fence,
--         mending ('' if nobody mends it), whole (0: answers, buyers or walks are not those that were written to), entries}
-- Keeps  everything: it only reads
-- Cost   O(1), and O(entries) with `from`

local stock, answers, buyers, outbox, walks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local from = ARGV[1]

local s = redis.call('HMGET', stock, 'available', 'state', 'epoch', 'last', 'limit', 'opens_ms', 'closes_ms', 'fence', 'mending')
if not s[1] then return {'missing'} end
local entries = {}
if from ~= '' then entries = redis.call('XRANGE', outbox, from, '+') end
-- One of each is the placeholder that open_segment leaves.
local function others(all) return math.max(all - 1, 0) end
local whole = redis.call('HEXISTS', answers, '') == 1 and redis.call('HEXISTS', buyers, '') == 1 and redis.call('ZSCORE', walks, '')
return {'ok', tonumber(s[1]), s[2], tonumber(s[3]), s[4], tonumber(s[5]), others(redis.call('HLEN', answers)),
  others(redis.call('HLEN', buyers)), redis.call('XLEN', outbox), others(redis.call('ZCARD', walks)),
  tonumber(s[6]), tonumber(s[7]), s[8], s[9] or '', whole and 1 or 0, entries}
