#!lua
-- Decides a batch of orders at their buyers' home segment: take, decline, or repeat the recorded
-- decision.
--
-- Closes the race between the checks (stock, buyer's limit, earlier decision) and taking the units.
--
-- KEYS 1 stock       hash    available, limit, state, opens_ms, closes_ms, epoch, hold_ms, last,
--                            segments, repairing
--      2 decisions   hash    order id -> decision
--      3 buyers      hash    buyer id -> units counted against the limit
--      4 outbox      stream  one entry for the whole batch
--      5 spillovers  zset    pending spillovers, by the millisecond at which they fall due
-- ARGV 1 n            orders in the batch, no order id twice
--      2 deadline_ms  by the clock of this server; later, the whole batch is refused
--      3 margin_ms    time after its deadline at which a final spillover may be forgotten
--      4 segment      ITEM:SEGMENT, for the wake-up message
--      then columns of n: order ids, buyer ids, quantities, packed orders
-- Returns {'late', now_ms}       nothing was read
--         {'missing', now_ms}    the segment is not here, or has lost its decisions or its counts
--         {'repairing', now_ms}  the segment is halted for repair: nothing was read
--         {'ok', now_ms, epoch, available, entry, expires_ms, state, opens_ms, closes_ms,
--          exceptions}
--         an order took its units unless `exceptions` (index, code, detail, ...) names it:
--           a  already decided; detail is the decision as it is stored
--           n  not open
--           l  the buyer's limit is reached
--           d  declined: this segment gives no units to this order before a later round
--           s  sold out: declined, and the item has no other segment
-- Keeps  available + units taken = units put in; available >= 0; count of a buyer <= limit; a
--        recorded decision never changes
-- Cost   three HMGET, and one HSET, HSET, HSET, XADD for the batch; O(n)

local stock, decisions, buyers, outbox, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local n, deadline, margin = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local segment = ARGV[4]
local id0, buyer0, quantity0, packed0 = 4, 4 + n, 4 + 2 * n, 4 + 3 * n

-- Kinds of a stored decision, and the form of a declined one (quantity, latest deadline, and colon
-- and round if it is not the first).
local TAKEN, DECLINED, SOLD_OUT = 'T', 'D', 'S'
local DECLINED_FORM, DECLINED_BYTE = '^D(%d+):(%d+)(:?%d*)$', 68
-- Codes of the reply for an order that takes nothing now.
local CODE_KNOWN, CODE_NOT_OPEN, CODE_LIMIT, CODE_DECLINED, CODE_SOLD_OUT = 'a', 'n', 'l', 'd', 's'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end

local available, limit, state, opens, closes, epoch, hold, last, segments, repairing =
  unpack(redis.call('HMGET', stock, 'available', 'limit', 'state', 'opens_ms', 'closes_ms', 'epoch',
    'hold_ms', 'last', 'segments', 'repairing'))
available = tonumber(available)
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
limit, opens, closes = tonumber(limit), tonumber(opens), tonumber(closes)
local open = state == 'open' and now >= opens and (closes == 0 or now < closes)
local alone = segments == '1'
local expires = now + tonumber(hold)

-- The first field is the placeholder that open_segment leaves. Without it the hash is not the one
-- that was written to: a segment that lost its counters must not restart them at zero.
local known = redis.call('HMGET', decisions, '', unpack(ARGV, id0 + 1, id0 + n))
local counts = redis.call('HMGET', buyers, '', unpack(ARGV, buyer0 + 1, buyer0 + n))
if not (known[1] and counts[1]) then return {'missing', now} end

-- Everything is decided before anything is written: Redis does not roll a failed script back.
local exceptions, new_decisions, new_counts, new_spillovers, taken = {}, {}, {}, {}, {}
-- Lengths of the lists: for Lua, finding the end of a list costs more than appending to it.
local decisions_n, counts_n, spillovers_n, taken_n = 0, 0, 0, 0
local decided, counted, held = {}, {}, {}
for i = 1, n do
  local id, decision = ARGV[id0 + i], known[i + 1]
  if decided[id] then return redis.error_reply('ERR order id twice in one batch') end
  decided[id] = true
  local code, detail = nil, ''
  if decision then
    code, detail = CODE_KNOWN, decision
    if string.byte(decision) == DECLINED_BYTE then
      -- Home keeps the latest deadline that any attempt presented.
      local quantity, until_ms, round = string.match(decision, DECLINED_FORM)
      -- Another quantity is another request under the same key. It is refused, and must not add a
      -- pending spillover of its own.
      if quantity == ARGV[quantity0 + i] and tonumber(until_ms) < deadline then
        new_decisions[decisions_n + 1] = id
        new_decisions[decisions_n + 2] = DECLINED .. quantity .. ':' .. deadline .. round
        new_spillovers[spillovers_n + 1] = deadline
        new_spillovers[spillovers_n + 2] = ARGV[packed0 + i]
        decisions_n, spillovers_n = decisions_n + 2, spillovers_n + 2
      end
    end
  elseif not open then
    code = CODE_NOT_OPEN
  else
    local buyer, quantity = ARGV[buyer0 + i], ARGV[quantity0 + i]
    local units = tonumber(quantity)
    local count = (counted[buyer] or tonumber(counts[i + 1] or 0)) + units
    local takes = available >= units
    if limit > 0 and count > limit then
      code = CODE_LIMIT
    elseif takes or not alone then
      counted[buyer] = count
      new_counts[counts_n + 1], new_counts[counts_n + 2] = buyer, count
      counts_n = counts_n + 2
    end
    if code == nil then
      local record
      if takes then
        available = available - units
        record = held[quantity]
        if not record then
          record = TAKEN .. quantity .. ':' .. expires
          held[quantity] = record
        end
        taken_n = taken_n + 1
        taken[taken_n] = ARGV[packed0 + i]
      else
        local due
        if alone then
          code, due = CODE_SOLD_OUT, deadline + margin
          record = SOLD_OUT .. quantity .. ':' .. deadline
        else
          code, due = CODE_DECLINED, deadline
          record = DECLINED .. quantity .. ':' .. deadline
        end
        new_spillovers[spillovers_n + 1], new_spillovers[spillovers_n + 2] = due, ARGV[packed0 + i]
        spillovers_n = spillovers_n + 2
      end
      new_decisions[decisions_n + 1], new_decisions[decisions_n + 2] = id, record
      decisions_n = decisions_n + 2
    end
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
if counts_n > 0 then redis.call('HSET', buyers, unpack(new_counts)) end
if decisions_n > 0 then redis.call('HSET', decisions, unpack(new_decisions)) end
if spillovers_n > 0 then redis.call('ZADD', spillovers, unpack(new_spillovers)) end
return {'ok', now, tonumber(epoch), available, entry, expires, state, opens, closes, exceptions}
