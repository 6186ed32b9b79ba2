#!lua
-- Decides a batch of orders once more, in a later round: take, decline, or repeat the recorded
-- decision. Every segment has declined the round before, and every earlier segment of the ring has
-- declined this one.
--
-- Closes the race between an order that spills over and units that come back behind it. Without
-- later rounds such an order could never have them.
--
-- KEYS 1 stock       hash    available, state, hold_ms, last, repairing, price
--      2 decisions   hash    order id -> decision
--      3 outbox      stream  one entry for the whole batch
--      4 spillovers  zset    pending spillovers, by the millisecond at which they fall due
-- ARGV 1 n            orders in the batch, no order id twice
--      2 deadline_ms  by the clock of this server, and not later than the one that home keeps;
--                     later, the whole batch is refused
--      3 margin_ms    time after its deadline at which a final spillover may be forgotten
--      4 segment      ITEM:SEGMENT, for the wake-up message
--      5 quantity     of each order; 0: they differ, and the packed orders have them
--      6 packed       the packed orders, one after the other
--      then columns of n: order ids, rounds (1 or higher), homes (1: this is the buyer's home)
-- Returns {'late', now_ms}       nothing was read
--         {'missing', now_ms}    the segment is not here, or has lost its decisions
--         {'repairing', now_ms}  the segment is halted for repair: nothing was read
--         {'ok', now_ms, available, entry, expires_ms, price, index, code, detail, ...}
--         price: of a unit, for the orders that took theirs; `` is the item's first one
--         an order took its units unless its index, a code and a detail follow:
--           a  already decided: not declined, or declined in this round or a later one; detail is
--              the decision as it is stored
--           d  declined in this round
--           x  home does not know the order, and has not counted it: begin at `reserve_home`
-- Keeps  available + units taken = units put in; available >= 0; count of a buyer; a decision other
--        than `declined`, and the round of a declined one never falls
-- Cost   two HMGET, and one HSET, HSET, XADD, ZADD for the batch; O(n log spillovers)

local stock, decisions, outbox, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, deadline, margin = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local segment, quantity, packed = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local id0, round0, home0 = 6, 6 + n, 6 + 2 * n

-- Form of a taken decision (quantity, end of the hold), and of a declined one (quantity, latest
-- deadline, round if it is not the first).
local TAKEN_FORMAT, DECLINED, DECLINED_FORM = 'T%dx%x', 'D', '^D(%d+):(%d+):?(%d*)$'
-- Codes of the reply for an order that takes nothing now.
local CODE_KNOWN, CODE_DECLINED, CODE_UNKNOWN = 'a', 'd', 'x'
-- Bytes of a packed order before its buyer id, and before its quantity.
local PACKED_HEAD, PACKED_QUANTITY = 21, 16
-- A call writes a number with 17 digits, which costs more than passing it as text.
local DECIMAL = '%d'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end

local available, state, hold, last, repairing, price =
  unpack(redis.call('HMGET', stock, 'available', 'state', 'hold_ms', 'last', 'repairing', 'price'))
available = tonumber(available)
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
local open = state == 'open'
price = price or ''
local expires = now + tonumber(hold)
local known = redis.call('HMGET', decisions, '', unpack(ARGV, id0 + 1, id0 + n))
if not known[1] then return {'missing', now} end

-- Everything is decided before anything is written: Redis does not roll a failed script back.
local reply = {'ok', now, available, last, expires, price}
local new_decisions, new_spillovers, taken, decided = {}, {}, {}, {}
local start, stop = 0, 0
for i = 1, n do
  local id, decision = ARGV[id0 + i], known[i + 1]
  local round, home = tonumber(ARGV[round0 + i]), ARGV[home0 + i] == '1'
  if decided[id] then return redis.error_reply('ERR order id twice in one batch') end
  decided[id] = true
  start = stop
  stop = start + PACKED_HEAD + string.byte(packed, start + PACKED_HEAD)
  local order = string.sub(packed, start + 1, stop)
  local units = quantity
  if units == 0 then units = struct.unpack('>I4', packed, start + PACKED_QUANTITY + 1) end
  local asked, until_ms, declined_round = string.match(decision or '', DECLINED_FORM)
  until_ms, declined_round = tonumber(until_ms or 0), tonumber(declined_round or '') or 0
  local code, detail, record = nil, '', nil
  if home and not decision then
    code = CODE_UNKNOWN
  elseif decision and (tonumber(asked) ~= units or declined_round >= round) then
    code, detail = CODE_KNOWN, decision
  else
    local latest = math.max(until_ms, deadline)
    local due = latest
    if open and available >= units then
      available = available - units
      record, due = string.format(TAKEN_FORMAT, units, expires), latest + margin
      taken[#taken + 1] = order
    else
      code, record = CODE_DECLINED, DECLINED .. units .. ':' .. latest .. ':' .. round
    end
    new_decisions[#new_decisions + 1], new_decisions[#new_decisions + 2] = id, record
    if home then
      new_spillovers[#new_spillovers + 1], new_spillovers[#new_spillovers + 2] = due, order
    end
  end
  if code then
    local at = #reply
    reply[at + 1], reply[at + 2], reply[at + 3] = i - 1, code, detail
  end
end

if #taken > 0 then
  local ends, orders = string.format(DECIMAL, expires), table.concat(taken)
  if price == '' then
    last = redis.call('XADD', outbox, '*', 'k', 'taken', 'x', ends, 'o', orders)
  else
    last = redis.call('XADD', outbox, '*', 'k', 'taken', 'x', ends, 'p', price, 'o', orders)
  end
  redis.call('HSET', stock, 'available', string.format(DECIMAL, available), 'last', last)
  -- Two entries: the recorder had recorded all but its anchor and sleeps.
  if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
end
if #new_decisions > 0 then redis.call('HSET', decisions, unpack(new_decisions)) end
if #new_spillovers > 0 then redis.call('ZADD', spillovers, unpack(new_spillovers)) end
reply[3], reply[4] = available, last
return reply
