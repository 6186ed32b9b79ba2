#!lua flags=allow-oom
-- Gives the units of a batch of orders back: taken becomes released, for good.
--
-- Closes the race between two who give the same order back: the units return once. Whoever does not know whether they did repeats it.
--
-- KEYS 1 stock    hash    available, last, mending
--      2 answers  hash    order id -> answer
--      3 buyers   hash    buyer id -> units counted against the limit; line feed and buyer id -> 1: gave something back
--      4 outbox   stream  one entry for the whole batch
-- ARGV 1 n        orders in the batch, no order id twice
--      2 segment  ITEM:SEGMENT, for the messages
--      then columns of n: order ids, buyer ids, packed orders, homes (1: this is the buyer's home)
-- Returns {'missing', now_ms} | {'mending', now_ms}  nothing was looked at
--         {'ok', now_ms, available, entry, released}
-- Keeps  available + units taken = units put in; count of a buyer >= 0; an answer that is not `taken`
-- Cost   one HMGET, and one HSET, XADD for the batch and HINCRBY, HSET for each order at home; O(n)

local stock, answers, buyers, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, segment = tonumber(ARGV[1]), ARGV[2]
local id0, buyer0, packed0, home0 = 2, 2 + n, 2 + 2 * n, 2 + 3 * n

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local s = redis.call('HMGET', stock, 'available', 'last', 'mending')
local available = tonumber(s[1])
if not available then return {'missing', now} end
if s[3] then return {'mending', now} end
local known = redis.call('HMGET', answers, unpack(ARGV, id0 + 1, id0 + n))

local new_answers, released, counts, decided = {}, {}, {}, {}
for i = 1, n do
  local id = ARGV[id0 + i]
  if decided[id] then return redis.error_reply('ERR order id twice in one batch') end
  decided[id] = true
  local quantity = string.match(known[i] or '', '^T(%d+):')
  if quantity then
    available = available + quantity
    new_answers[#new_answers + 1] = id
    new_answers[#new_answers + 1] = 'R' .. quantity .. ':' .. now
    released[#released + 1] = ARGV[packed0 + i]
    if ARGV[home0 + i] == '1' then
      counts[#counts + 1] = ARGV[buyer0 + i]
      counts[#counts + 1] = quantity
    end
  end
end

local entry = s[2]
if #released > 0 then
  entry = redis.call('XADD', outbox, '*', 'k', 'released', 'o', table.concat(released))
  redis.call('HSET', stock, 'available', available, 'last', entry)
  redis.call('HSET', answers, unpack(new_answers))
  for i = 1, #counts, 2 do
    if redis.call('HINCRBY', buyers, counts[i], -counts[i + 1]) <= 0 then redis.call('HDEL', buyers, counts[i]) end
    -- The order has an answer for good, and whoever only looks here must not take its buyer for one who has none.
    redis.call('HSET', buyers, '\n' .. counts[i], 1)
  end
  if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
  redis.pcall('PUBLISH', 'stockade:returned', segment .. ' ' .. available)
end
return {'ok', now, available, entry, #released}
