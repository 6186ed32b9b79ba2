#!lua
-- Decides a batch of orders that every earlier segment of their ring has declined: take, decline,
-- or repeat the recorded decision.
--
-- Closes the race between the checks (stock, earlier decision) and taking the units. The home
-- segment has already checked the buyer's limit.
--
-- KEYS 1 stock      hash    available, state, epoch, hold_ms, last, repairing
--      2 decisions  hash    order id -> decision
--      3 outbox     stream  one entry for the whole batch
-- ARGV 1 n            orders in the batch, no order id twice
--      2 deadline_ms  by the clock of this server, and not later than the one that home keeps;
--                     later, the whole batch is refused
--      3 segment      ITEM:SEGMENT, for the wake-up message
--      then columns of n: order ids, quantities, packed orders
-- Returns {'late', now_ms}       nothing was read
--         {'missing', now_ms}    the segment is not here, or has lost its decisions
--         {'repairing', now_ms}  the segment is halted for repair: nothing was read
--         {'ok', now_ms, epoch, available, entry, expires_ms, exceptions}
--         an order took its units unless `exceptions` (index, code, detail, ...) names it:
--           a  already decided; detail is the decision as it is stored
--           d  declined: this segment gives no units to this order before a later round
-- Keeps  available + units taken = units put in; available >= 0; a recorded decision never changes
-- Cost   two HMGET, and one HSET, HSET, XADD for the batch; O(n)

local stock, decisions, outbox = KEYS[1], KEYS[2], KEYS[3]
local n, deadline, segment = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local id0, quantity0, packed0 = 3, 3 + n, 3 + 2 * n

-- Kinds of a stored decision.
local TAKEN, DECLINED = 'T', 'D'
-- Codes of the reply for an order that takes nothing now.
local CODE_KNOWN, CODE_DECLINED = 'a', 'd'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end

local available, state, epoch, hold, last, repairing =
  unpack(redis.call('HMGET', stock, 'available', 'state', 'epoch', 'hold_ms', 'last', 'repairing'))
available = tonumber(available)
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
-- A paused segment declines. It must not refuse: home counts the order's buyer, and a spillover has
-- to end somewhere.
local open = state == 'open'
local expires = now + tonumber(hold)
-- The first field is the placeholder that open_segment leaves. Without it the hash is not the one
-- that was written to.
local known = redis.call('HMGET', decisions, '', unpack(ARGV, id0 + 1, id0 + n))
if not known[1] then return {'missing', now} end

-- Everything is decided before anything is written: Redis does not roll a failed script back.
local exceptions, new_decisions, taken, decided = {}, {}, {}, {}
-- Lengths of the lists: for Lua, finding the end of a list costs more than appending to it.
local decisions_n, taken_n = 0, 0
for i = 1, n do
  local id, decision = ARGV[id0 + i], known[i + 1]
  if decided[id] then return redis.error_reply('ERR order id twice in one batch') end
  decided[id] = true
  local code, detail = nil, ''
  if decision then
    code, detail = CODE_KNOWN, decision
  else
    local quantity = ARGV[quantity0 + i]
    local units = tonumber(quantity)
    local record
    if open and available >= units then
      available = available - units
      record = TAKEN .. quantity .. ':' .. expires
      taken_n = taken_n + 1
      taken[taken_n] = ARGV[packed0 + i]
    else
      code, record = CODE_DECLINED, DECLINED .. quantity .. ':' .. deadline
    end
    new_decisions[decisions_n + 1], new_decisions[decisions_n + 2] = id, record
    decisions_n = decisions_n + 2
  end
  if code then
    local at = #exceptions
    exceptions[at + 1], exceptions[at + 2], exceptions[at + 3] = i - 1, code, detail
  end
end

local entry = last
if taken_n > 0 then
  entry = redis.call('XADD', outbox, '*', 'k', 'taken', 'x', expires, 'o', table.concat(taken))
  redis.call('HSET', stock, 'available', available, 'last', entry)
  -- Two entries: the recorder had recorded all but its anchor and sleeps.
  if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
end
if decisions_n > 0 then redis.call('HSET', decisions, unpack(new_decisions)) end
return {'ok', now, tonumber(epoch), available, entry, expires, exceptions}
