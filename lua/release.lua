#!lua flags=allow-oom
-- Releases the units of a batch of orders: `taken` becomes `released`, permanently.
--
-- Closes the race between two releases of the same order: the units return once. A caller that did
-- not receive the reply repeats the call.
--
-- KEYS 1 stock      hash    available, last, repairing, gained
--      2 decisions  hash    order id -> decision
--      3 buyers     hash    buyer id -> units counted against the limit; line feed and buyer id
--                           -> 1: has released something
--      4 outbox     stream  one entry for the whole batch
-- ARGV 1 n        orders in the batch, no order id twice
--      2 segment  ITEM:SEGMENT, for the messages
--      then columns of n: order ids, buyer ids, packed orders, homes (1: this is the buyer's home)
-- Returns {'missing', now_ms} | {'repairing', now_ms}  nothing was read
--         {'ok', now_ms, available, entry, released}
-- Keeps  available + units taken = units put in; count of a buyer >= 0; a decision that is not
--        `taken`
-- Cost   one HMGET, and one HSET, XADD for the batch and HINCRBY, HSET for each order at home; O(n)

local stock, decisions, buyers, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, segment = tonumber(ARGV[1]), ARGV[2]
local id0, buyer0, packed0, home0 = 2, 2 + n, 2 + 2 * n, 2 + 3 * n

-- Kind of a released decision, and the quantity of a taken one in both of its forms.
local RELEASED, TAKEN_QUANTITY = 'R', '^T(%d+)[x:]'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local available, last, repairing =
  unpack(redis.call('HMGET', stock, 'available', 'last', 'repairing'))
available = tonumber(available)
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
local known = redis.call('HMGET', decisions, unpack(ARGV, id0 + 1, id0 + n))

local new_decisions, released, counts, decided = {}, {}, {}, {}
for i = 1, n do
  local id = ARGV[id0 + i]
  if decided[id] then return redis.error_reply('ERR order id twice in one batch') end
  decided[id] = true
  local quantity = string.match(known[i] or '', TAKEN_QUANTITY)
  if quantity then
    available = available + quantity
    new_decisions[#new_decisions + 1] = id
    new_decisions[#new_decisions + 1] = RELEASED .. quantity .. ':' .. now
    released[#released + 1] = ARGV[packed0 + i]
    if ARGV[home0 + i] == '1' then
      counts[#counts + 1] = ARGV[buyer0 + i]
      counts[#counts + 1] = quantity
    end
  end
end

local entry = last
if #released > 0 then
  entry = redis.call('XADD', outbox, '*', 'k', 'released', 'o', table.concat(released))
  redis.call('HSET', stock, 'available', available, 'last', entry, 'gained', entry)
  redis.call('HSET', decisions, unpack(new_decisions))
  for i = 1, #counts, 2 do
    local buyer, quantity = counts[i], counts[i + 1]
    local count = redis.call('HINCRBY', buyers, buyer, -quantity)
    if count <= 0 then redis.call('HDEL', buyers, buyer) end
    -- The order keeps its decision, so a reader of `buyers` must still find its buyer.
    redis.call('HSET', buyers, '\n' .. buyer, 1)
  end
  if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
  redis.pcall('PUBLISH', 'stockade:returned', segment .. ' ' .. available)
end
return {'ok', now, available, entry, #released}
