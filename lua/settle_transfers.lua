#!lua flags=allow-oom
-- Notes that all units that have left a segment by transfers have arrived, or left the item.
--
-- Closes the race with a transfer that begins meanwhile: this is a compare-and-set on the last entry
-- by which units left. The caller has read that entry, and has seen afterwards that the ledger has
-- no open transfer from here. A late or repeated call changes nothing.
--
-- KEYS 1 stock  hash  left, leaving, repairing
-- ARGV 1 left  the last entry by which units left, as it was read
-- Returns {'missing', left} | {'repairing', left} | {'moved', left}  nothing was changed
--         {'settled', left}
-- Keeps  everything but `leaving`
-- Cost   O(1)

local stock = KEYS[1]
local wanted = ARGV[1]

local left, repairing = unpack(redis.call('HMGET', stock, 'left', 'repairing'))
if not left then return {'missing', ''} end
if repairing then return {'repairing', left} end
if left ~= wanted then return {'moved', left} end
redis.call('HSET', stock, 'leaving', 0)
return {'settled', left}
