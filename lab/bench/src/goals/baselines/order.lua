#!lua
-- Decides one order of one unit: what `raw/columns.lua` does for a batch.
--
-- KEYS 1 stock   string  units left
--      2 buyers  hash    buyer -> order
--      3 outbox  stream  an entry for each order
-- ARGV 1 buyer   2 order
-- Returns 't' taken, 'a' answered before, 'l' the buyer has a unit, 's' sold out
-- Keeps  units left + units taken = units put in; a unit for each buyer
-- Cost   HGET, GET, DECR, HSET, XADD

local stock, buyers, outbox, buyer, order = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]

local known = redis.call('HGET', buyers, buyer)
if known then return known == order and 'a' or 'l' end
if tonumber(redis.call('GET', stock)) < 1 then return 's' end
redis.call('DECR', stock)
redis.call('HSET', buyers, buyer, order)
redis.call('XADD', outbox, '*', 'o', order, 'b', buyer)
return 't'
