#!lua flags=allow-oom
-- Marks a home segment: its decisions have every order of the ledger that another segment has. The
-- mark is the history in which this was checked.
--
-- Closes the race with a failover: home is marked only if it still has the history in which it was
-- checked, and a failover that loses decisions later begins another one. Closes the race with a
-- repairer that drops decisions meanwhile: the higher token wins.
--
-- KEYS 1 stock  hash  available, fence, repairing, checked
-- ARGV 1 token   2 history  the replication id of the server, as it was read before the check
-- Returns {'missing'} | {'repairing'}  nothing was changed
--         {'fenced', fence}            the segment has seen a higher token
--         {'moved'}                    the server has another history
--         {'marked'}
-- Keeps  everything but `checked`
-- Cost   O(1)

local stock = KEYS[1]
local token, checked = ARGV[1], ARGV[2]

-- Tokens are decimal numbers and may exceed the integers that Lua represents exactly.
local function less(a, b) return #a < #b or (#a == #b and a < b) end

local available, fence, repairing =
  unpack(redis.call('HMGET', stock, 'available', 'fence', 'repairing'))
if not available then return {'missing'} end
if repairing then return {'repairing'} end
if less(token, fence) then return {'fenced', fence} end
local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
if history ~= checked then return {'moved'} end
redis.call('HSET', stock, 'checked', checked)
return {'marked'}
