#!lua flags=allow-oom
-- Forgets final walks at home, after every other segment of their rings has forgotten them.
--
-- Closes the race with an order that walks anew: the walk is forgotten only as it was read, by its due time.
--
-- KEYS 1 answers  hash  order id -> answer
--      2 walks    zset  unfinished walks, by the millisecond at which they fall due
-- ARGV 1 n  walks in the batch
--      then columns of n: order ids, packed orders, due times (ms) as they were read
-- Returns {now_ms, forgotten}
-- Keeps  a sold-out answer until it is due; a "taken elsewhere" answer for as long as the order; a walk that is not final
-- Cost   O(n log walks)

local answers, walks = KEYS[1], KEYS[2]
local n = tonumber(ARGV[1])
local id0, packed0, due0 = 1, 1 + n, 1 + 2 * n

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local forgotten = 0
for i = 1, n do
  local id, packed, due = ARGV[id0 + i], ARGV[packed0 + i], tonumber(ARGV[due0 + i])
  local kind = string.sub(redis.call('HGET', answers, id) or 'S', 1, 1)
  local score = tonumber(redis.call('ZSCORE', walks, packed) or '-1')
  if kind ~= 'P' and score == due and due <= now then
    if kind == 'S' then redis.call('HDEL', answers, id) end
    redis.call('ZREM', walks, packed)
    forgotten = forgotten + 1
  end
end
return {now, forgotten}
