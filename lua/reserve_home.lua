#!lua
-- Decides a batch of orders at their buyers' home segment: take, decline, or repeat the recorded
-- decision.
--
-- Closes the race between the checks (stock, buyer's limit, earlier decision) and taking the units.
--
-- KEYS 1 stock       hash    available, limit, state, opens_ms, closes_ms, hold_ms, last, segments,
--                            repairing, price
--      2 decisions   hash    order id -> decision
--      3 buyers      hash    buyer id -> units counted against the limit
--      4 outbox      stream  one entry for the whole batch
--      5 spillovers  zset    pending spillovers, by the millisecond at which they fall due
-- ARGV 1 n            orders in the batch, no order id twice
--      2 deadline_ms  by the clock of this server; later, the whole batch is refused
--      3 margin_ms    time after its deadline at which a final spillover may be forgotten
--      4 segment      ITEM:SEGMENT, for the wake-up message
--      5 quantity     of each order; 0: they differ, and the packed orders have them
--      6 packed       the packed orders, one after the other
--      then columns of n: order ids, buyer ids
-- Returns {'late', now_ms}       nothing was read
--         {'missing', now_ms}    the segment is not here, or has lost its decisions or its counts
--         {'repairing', now_ms}  the segment is halted for repair: nothing was read
--         {'ok', now_ms, available, entry, expires_ms, price, index, code, detail, ...}
--         price: of a unit, for the orders that took theirs; `` is the item's first one
--         an order took its units unless its index, a code and a detail follow:
--           a  already decided; detail is the decision as it is stored
--           n  not open; detail is STATE:OPENS_MS:CLOSES_MS
--           l  the buyer's limit is reached
--           d  declined: this segment gives no units to this order before a later round
--           s  sold out: declined, and the item has no other segment
-- Keeps  available + units taken = units put in; available >= 0; count of a buyer <= limit; a
--        recorded decision never changes
-- Cost   three HMGET, and one HSET, HSET, HSET, XADD for the batch; O(n)

local stock, decisions, buyers, outbox, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local n, deadline, margin = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local segment, quantity, packed = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local id0, buyer0 = 6, 6 + n

-- Kinds of a stored decision, and the form of a declined one (quantity, latest deadline, and colon
-- and round if it is not the first).
local DECLINED, SOLD_OUT = 'D', 'S'
local DECLINED_FORM, DECLINED_BYTE = '^D(%d+):(%d+)(:?%d*)$', 68
-- A taken one: quantity, and end of the hold. The short form fits a smaller block of memory.
local TAKEN_FORMAT = 'T%dx%x'
-- Codes of the reply for an order that takes nothing now.
local CODE_KNOWN, CODE_NOT_OPEN, CODE_LIMIT, CODE_DECLINED, CODE_SOLD_OUT = 'a', 'n', 'l', 'd', 's'
-- Bytes of a packed order before its buyer id, and before its quantity.
local PACKED_HEAD, PACKED_QUANTITY = 21, 16
-- A call writes a number with 17 digits, which costs more than all that this script does for an
-- order. So the script passes texts, and writes each number once.
local DECIMAL = '%d'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(deadline) then return {'late', now} end

local available, limit, state, opens, closes, hold, last, segments, repairing, price =
  unpack(redis.call('HMGET', stock, 'available', 'limit', 'state', 'opens_ms', 'closes_ms',
    'hold_ms', 'last', 'segments', 'repairing', 'price'))
available = tonumber(available)
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
limit = tonumber(limit)
local open = state == 'open' and now >= tonumber(opens)
  and (closes == '0' or now < tonumber(closes))
local alone = segments == '1'
price = price or ''
local expires = now + tonumber(hold)

-- The first field is the placeholder that open_segment leaves. Without it the hash is not the one
-- that was written to: a segment that lost its counters must not restart them at zero.
local known = redis.call('HMGET', decisions, '', unpack(ARGV, id0 + 1, id0 + n))
local counts = redis.call('HMGET', buyers, '', unpack(ARGV, buyer0 + 1, buyer0 + n))
if not (known[1] and counts[1]) then return {'missing', now} end

-- Everything is decided before anything is written: Redis does not roll a failed script back.
local reply = {'ok', now, available, last, expires, price}
local new_decisions, later_deadlines, new_counts, new_spillovers, taken = {}, {}, {}, {}, {}
-- Lengths of the lists: for Lua, finding the end of a list costs more than appending to it.
local reply_n, decisions_n, counts_n, taken_n = 6, 0, 0, 0
local counted, count_texts, records = {}, {}, {}
-- Where the packed order begins and ends, and where those begin that have taken in a row.
local start, stop, run = 0, 0, 0
for i = 1, n do
  local id, buyer, decision = ARGV[id0 + i], ARGV[buyer0 + i], known[i + 1]
  start, stop = stop, stop + PACKED_HEAD + #buyer
  local units = quantity
  if units == 0 then units = struct.unpack('>I4', packed, start + PACKED_QUANTITY + 1) end
  local code, detail = nil, ''
  if decision then
    code, detail = CODE_KNOWN, decision
    if string.byte(decision) == DECLINED_BYTE then
      -- Home keeps the latest deadline that any attempt presented.
      local declined, until_ms, round = string.match(decision, DECLINED_FORM)
      -- Another quantity is another request under the same key. It is refused, and must not add a
      -- pending spillover of its own.
      if tonumber(declined) == units and tonumber(until_ms) < tonumber(deadline) then
        later_deadlines[#later_deadlines + 1] = id
        later_deadlines[#later_deadlines + 1] = DECLINED .. declined .. ':' .. deadline .. round
        new_spillovers[#new_spillovers + 1] = deadline
        new_spillovers[#new_spillovers + 1] = string.sub(packed, start + 1, stop)
      end
    end
  elseif not open then
    code, detail = CODE_NOT_OPEN, state .. ':' .. opens .. ':' .. closes
  else
    local count = (counted[buyer] or counts[i + 1] or 0) + units
    local takes = available >= units
    if limit > 0 and count > limit then
      code = CODE_LIMIT
    elseif takes or not alone then
      counted[buyer] = count
      local text = count_texts[count]
      if not text then
        text = string.format(DECIMAL, count)
        count_texts[count] = text
      end
      new_counts[counts_n + 1], new_counts[counts_n + 2] = buyer, text
      counts_n = counts_n + 2
    end
    if code == nil then
      local record
      if takes then
        available = available - units
        record = records[units]
        if not record then
          record = string.format(TAKEN_FORMAT, units, expires)
          records[units] = record
        end
      else
        local due = deadline
        if alone then
          code, due = CODE_SOLD_OUT, deadline + margin
          record = SOLD_OUT .. units .. ':' .. deadline
        else
          code, record = CODE_DECLINED, DECLINED .. units .. ':' .. deadline
        end
        new_spillovers[#new_spillovers + 1] = due
        new_spillovers[#new_spillovers + 1] = string.sub(packed, start + 1, stop)
      end
      new_decisions[decisions_n + 1], new_decisions[decisions_n + 2] = id, record
      decisions_n = decisions_n + 2
    end
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
if counts_n > 0 then redis.call('HSET', buyers, unpack(new_counts)) end
if #later_deadlines > 0 then redis.call('HSET', decisions, unpack(later_deadlines)) end
if #new_spillovers > 0 then redis.call('ZADD', spillovers, unpack(new_spillovers)) end
reply[3], reply[4] = available, last
return reply
