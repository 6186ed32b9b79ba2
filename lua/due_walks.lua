#!lua flags=no-writes
-- Lists the walks that started at this segment and are due: to be repeated if they are not final, to be forgotten if they are.
--
-- Closes the race between reading the list and reading the answers: both are of one moment.
--
-- KEYS 1 answers  hash  order id -> answer
--      2 walks    zset  unfinished walks, by the millisecond at which they fall due
-- ARGV 1 at_most  walks to list
--      2 skip     walks to leave out at the front: those that could not be seen to just now
-- Returns {now_ms, {packed order, due_ms, answer ('' if none), ...}}
-- Keeps  everything: it only reads
-- Cost   O(log walks + skip + at_most)

local answers, walks = KEYS[1], KEYS[2]
local at_most, skip = tonumber(ARGV[1]), tonumber(ARGV[2])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', walks, '-inf', now, 'WITHSCORES', 'LIMIT', skip, at_most)
local list = {}
for i = 1, #due, 2 do
  local at = #list
  list[at + 1], list[at + 2] = due[i], due[i + 1]
  list[at + 3] = redis.call('HGET', answers, string.sub(due[i], 1, 16)) or ''
end
return {now, list}
