#!lua
-- Makes walks final at home: each of the batch took its units elsewhere, or was passed by every segment of its ring.
--
-- Closes the race between two attempts of one order that end their walks at once: the first one settles it, and the buyer's count
-- goes back at most once. From here on home answers every retry by itself.
--
-- KEYS 1 stock    hash    mending
--      2 answers  hash    order id -> answer
--      3 buyers   hash    buyer id -> units counted against the limit
--      4 walks    zset    unfinished walks, by the millisecond at which they fall due
-- ARGV 1 n            walks in the batch
--      2 deadline_ms  by the clock of this server. After it the batch is refused: the order may have been forgotten and walk anew,
--                     and this would end the new walk with the old one's outcome
--      3 margin_ms    how long after its last deadline a final walk may be forgotten
--      then columns of n: order ids, buyer ids, packed orders, outcomes (`S` sold out | `E` taken elsewhere),
--      places (`EXPIRES_MS:SEGMENT` for `E`)
-- Returns {'late', now_ms} | {'mending', now_ms} | {'ok', now_ms, changed}
-- Keeps  only `passed` becomes final, and a final answer never changes; count of a buyer >= 0
-- Cost   O(n log walks)

local stock, answers, buyers, walks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, deadline, margin = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local id0, buyer0, packed0, outcome0, place0 = 3, 3 + n, 3 + 2 * n, 3 + 3 * n, 3 + 4 * n

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end
if redis.call('HGET', stock, 'mending') then return {'mending', now} end

local changed = 0
for i = 1, n do
  local id, buyer = ARGV[id0 + i], ARGV[buyer0 + i]
  local quantity, until_ms = string.match(redis.call('HGET', answers, id) or '', '^P(%d+):(%d+)$')
  if quantity then
    changed = changed + 1
    if ARGV[outcome0 + i] == 'S' then
      redis.call('HSET', answers, id, 'S' .. quantity .. ':' .. until_ms)
      if redis.call('HINCRBY', buyers, buyer, -quantity) <= 0 then redis.call('HDEL', buyers, buyer) end
    else
      redis.call('HSET', answers, id, 'E' .. quantity .. ':' .. ARGV[place0 + i])
    end
    redis.call('ZADD', walks, until_ms + margin, ARGV[packed0 + i])
  end
end
return {'ok', now, changed}
