#!lua flags=no-writes
-- Lists the pending spillovers of this home segment that are due. A spillover that is not final is
-- to be repeated, a final one to be forgotten.
--
-- Closes the race between reading the list and reading the decisions: both come from one moment.
--
-- KEYS 1 decisions   hash  order id -> decision
--      2 spillovers  zset  pending spillovers, by the millisecond at which they fall due
-- ARGV 1 at_most  spillovers to list
--      2 skip     spillovers to leave out at the front, because they could not be settled just now
-- Returns {now_ms, {packed order, due_ms, decision ('' if none), ...}}
-- Keeps  everything: it only reads
-- Cost   O(log spillovers + skip + at_most)

local decisions, spillovers = KEYS[1], KEYS[2]
local at_most, skip = tonumber(ARGV[1]), tonumber(ARGV[2])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due =
  redis.call('ZRANGEBYSCORE', spillovers, '-inf', now, 'WITHSCORES', 'LIMIT', skip, at_most)
local list = {}
for i = 1, #due, 2 do
  local at = #list
  list[at + 1], list[at + 2] = due[i], due[i + 1]
  list[at + 3] = redis.call('HGET', decisions, string.sub(due[i], 1, 16)) or ''
end
return {now, list}
