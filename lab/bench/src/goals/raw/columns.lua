#!lua
-- Decides a batch of orders of one unit each, in columns. It is the minimum of an order step that records its buyers,
-- sells each buyer at most one unit, never oversells, and logs what it sold. It has no window, state, spillover or clock.
--
-- KEYS 1 stock   string  units left
--      2 buyers  hash    buyer -> order
--      3 outbox  stream  one entry for the batch
-- ARGV 1 n  then columns of n: buyers, orders
--      last: the orders as they go into the outbox, end to end
-- Returns 1                         all of them took their unit
--         {taken, index, code, ...} `a` answered before, `l` the buyer has a unit, `s` sold out
-- Keeps  units left + units taken = units put in; a unit for each buyer
-- Cost   HMGET, GET, HSET, DECRBY, XADD; O(n)

local stock, buyers, outbox = KEYS[1], KEYS[2], KEYS[3]
local n = tonumber(ARGV[1])

local known = redis.call('HMGET', buyers, unpack(ARGV, 2, n + 1))
local left = tonumber(redis.call('GET', stock))

local writes, exceptions, seen, taken = {}, {}, {}, 0
for i = 1, n do
  local buyer, order, before = ARGV[1 + i], ARGV[1 + n + i], known[i]
  if seen[buyer] then return redis.error_reply('ERR buyer twice in one batch') end
  seen[buyer] = true
  local code
  if before then
    code = before == order and 'a' or 'l'
  elseif taken < left then
    taken = taken + 1
    writes[2 * taken - 1], writes[2 * taken] = buyer, order
  else
    code = 's'
  end
  if code then
    local at = #exceptions
    exceptions[at + 1], exceptions[at + 2] = i - 1, code
  end
end

if taken > 0 then
  redis.call('HSET', buyers, unpack(writes))
  redis.call('DECRBY', stock, taken)
  redis.call('XADD', outbox, '*', 'o', ARGV[2 * n + 2], 'e', table.concat(exceptions, ' '))
end
if taken == n then return 1 end
return {taken, unpack(exceptions)}
