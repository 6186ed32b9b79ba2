#!lua flags=no-writes
-- Reads a snapshot of a segment.
--
-- Closes the race between reading the counter and reading the entries that led to it.
--
-- KEYS 1 stock       hash    all fields
--      2 decisions   hash    order id -> decision
--      3 buyers      hash    buyer id -> units counted against the limit
--      4 outbox      stream  the entries not yet recorded
--      5 spillovers  zset    pending spillovers
-- ARGV 1 from  an outbox id: also list the entries from there on, inclusive; `-`: from the
--              beginning; `+`: list none; ``: list none, and name no history
--      2 at_most  entries to list; the others up to `last` are to be read behind them
-- Returns {'missing'} | {'ok', name, value, ...}, the names in any order:
--         available, state, epoch, last, limit, opens_ms, closes_ms, fence: as they are stored;
--         price: of a unit for orders to come, '' if it is the item's first one;
--         gained, left: the last entries by which units came in, and left for another segment;
--         leaving: units that left and are not known to have arrived;
--         decisions, buyers, outbox, spillovers: number of fields and entries;
--         repairing: the repairer's token, '' without a repair;
--         whole: 0 if decisions, buyers or spillovers are not those that were written to;
--         history: of this server, its replication id: a failover and a restart begin another one;
--         checked: the one that home was last marked with (`mark_checked`), '' without a mark. Both
--         are '' without `from`;
--         entries: the first of the outbox entries
-- Keeps  everything: it only reads
-- Cost   O(1), and O(at_most) with `from`

local stock, decisions, buyers, outbox, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local from, at_most = ARGV[1], ARGV[2]

local available, state, epoch, last, limit, opens, closes, fence, repairing, gained, leaving, left,
  checked, price =
  unpack(redis.call('HMGET', stock, 'available', 'state', 'epoch', 'last', 'limit', 'opens_ms',
    'closes_ms', 'fence', 'repairing', 'gained', 'leaving', 'left', 'checked', 'price'))
if not available then return {'missing'} end
local entries, history = {}, ''
if from ~= '' then
  entries = redis.call('XRANGE', outbox, from, '+', 'COUNT', at_most)
  history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or ''
else
  checked = ''
end
-- One of each is the placeholder that open_segment leaves.
local function others(all) return math.max(all - 1, 0) end
local whole = redis.call('HEXISTS', decisions, '') == 1 and redis.call('HEXISTS', buyers, '') == 1
  and redis.call('ZSCORE', spillovers, '')
return {'ok', 'available', tonumber(available), 'state', state, 'epoch', tonumber(epoch),
  'last', last, 'limit', tonumber(limit), 'opens_ms', tonumber(opens),
  'closes_ms', tonumber(closes), 'price', price or '', 'fence', fence, 'repairing', repairing or '',
  'gained', gained, 'leaving', tonumber(leaving), 'left', left,
  'decisions', others(redis.call('HLEN', decisions)), 'buyers', others(redis.call('HLEN', buyers)),
  'outbox', redis.call('XLEN', outbox), 'spillovers', others(redis.call('ZCARD', spillovers)),
  'whole', whole and 1 or 0, 'history', history, 'checked', checked or '', 'entries', entries}
