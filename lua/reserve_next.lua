#!lua
-- Decides a batch of orders that every earlier segment of their ring has declined: take, decline,
-- or repeat the recorded decision.
--
-- Closes the race between the checks (stock, earlier decision) and taking the units. The home
-- segment has already checked the buyer's limit.
--
-- KEYS 1 stock      hash    available, state, hold_ms, last, repairing, price
--      2 decisions  hash    order id -> decision
--      3 outbox     stream  one entry for the whole batch
-- ARGV 1 n            orders in the batch, no order id twice
--      2 deadline_ms  by the clock of this server, and not later than the one that home keeps;
--                     later, the whole batch is refused
--      3 segment      ITEM:SEGMENT, for the wake-up message
--      4 quantity     of each order; 0: they differ, and the packed orders have them
--      5 packed       the packed orders, one after the other
--      then columns of n: order ids
-- Returns {'late', now_ms}       nothing was read
--         {'missing', now_ms}    the segment is not here, or has lost its decisions
--         {'repairing', now_ms}  the segment is halted for repair: nothing was read
--         {'ok', now_ms, available, entry, expires_ms, price, index, code, detail, ...}
--         price: of a unit, for the orders that took theirs; `` is the item's first one
--         an order took its units unless its index, a code and a detail follow:
--           a  already decided; detail is the decision as it is stored
--           d  declined: this segment gives no units to this order before a later round
-- Keeps  available + units taken = units put in; available >= 0; a recorded decision never changes
-- Cost   two HMGET, and one HSET, HSET, XADD for the batch; O(n)

local stock, decisions, outbox = KEYS[1], KEYS[2], KEYS[3]
local n, deadline, segment, quantity, packed =
  tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local id0 = 5

-- Kind of a stored decision, and the form of a taken one (quantity, end of the hold).
local DECLINED, TAKEN_FORMAT = 'D', 'T%dx%x'
-- Codes of the reply for an order that takes nothing now.
local CODE_KNOWN, CODE_DECLINED = 'a', 'd'
-- Bytes of a packed order before its buyer id, and before its quantity.
local PACKED_HEAD, PACKED_QUANTITY = 21, 16
-- A call writes a number with 17 digits, which costs more than passing it as text.
local DECIMAL = '%d'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(deadline) then return {'late', now} end

local available, state, hold, last, repairing, price =
  unpack(redis.call('HMGET', stock, 'available', 'state', 'hold_ms', 'last', 'repairing', 'price'))
available = tonumber(available)
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
-- A paused segment declines. It must not refuse: home counts the order's buyer, and a spillover has
-- to end somewhere.
local open = state == 'open'
price = price or ''
local expires = now + tonumber(hold)
-- The first field is the placeholder that open_segment leaves. Without it the hash is not the one
-- that was written to.
local known = redis.call('HMGET', decisions, '', unpack(ARGV, id0 + 1, id0 + n))
if not known[1] then return {'missing', now} end

-- Everything is decided before anything is written: Redis does not roll a failed script back.
local reply = {'ok', now, available, last, expires, price}
local new_decisions, taken = {}, {}
-- Lengths of the lists: for Lua, finding the end of a list costs more than appending to it.
local reply_n, decisions_n, taken_n = 6, 0, 0
local records = {}
-- Where the packed order begins and ends, and where those begin that have taken in a row.
local start, stop, run = 0, 0, 0
for i = 1, n do
  local id, decision = ARGV[id0 + i], known[i + 1]
  start = stop
  stop = start + PACKED_HEAD + string.byte(packed, start + PACKED_HEAD)
  local code, detail = nil, ''
  if decision then
    code, detail = CODE_KNOWN, decision
  else
    local units = quantity
    if units == 0 then units = struct.unpack('>I4', packed, start + PACKED_QUANTITY + 1) end
    local record
    if open and available >= units then
      available = available - units
      record = records[units]
      if not record then
        record = string.format(TAKEN_FORMAT, units, expires)
        records[units] = record
      end
    else
      code, record = CODE_DECLINED, DECLINED .. units .. ':' .. deadline
    end
    new_decisions[decisions_n + 1], new_decisions[decisions_n + 2] = id, record
    decisions_n = decisions_n + 2
  end
  if code then
    reply[reply_n + 1], reply[reply_n + 2], reply[reply_n + 3] = i - 1, code, detail
    reply_n, taken_n = reply_n + 3, taken_n + 1
    taken[taken_n] = string.sub(packed, run + 1, start)
    run = stop
  end
end

-- The server counts the fields that are new. If they are fewer than the decisions, an id was in the
-- batch twice. This costs less than a table of all ids.
if decisions_n > 0 and redis.call('HSET', decisions, unpack(new_decisions)) < decisions_n / 2 then
  for i = 1, decisions_n, 2 do redis.call('HDEL', decisions, new_decisions[i]) end
  return redis.error_reply('ERR order id twice in one batch')
end
if run > 0 then
  taken[taken_n + 1] = string.sub(packed, run + 1)
  packed = table.concat(taken)
end
if packed ~= '' then
  local ends = string.format(DECIMAL, expires)
  if price == '' then
    last = redis.call('XADD', outbox, '*', 'k', 'taken', 'x', ends, 'o', packed)
  else
    last = redis.call('XADD', outbox, '*', 'k', 'taken', 'x', ends, 'p', price, 'o', packed)
  end
  redis.call('HSET', stock, 'available', string.format(DECIMAL, available), 'last', last)
  -- Two entries: the recorder had recorded all but its anchor and sleeps.
  if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
end
reply[3], reply[4] = available, last
return reply
