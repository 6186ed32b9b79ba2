#!lua
-- Decides a batch of orders once more, in a later round: take, decline, or repeat the recorded
-- decision. Every segment has declined the round before, and every earlier segment of the ring has
-- declined this one.
--
-- Closes the race between an order that spills over and units that come back behind it. Without
-- later rounds such an order could never have them.
--
-- KEYS 1 stock       hash    available, state, epoch, hold_ms, last, repairing
--      2 decisions   hash    order id -> decision
--      3 outbox      stream  one entry for the whole batch
--      4 spillovers  zset    pending spillovers, by the millisecond at which they fall due
-- ARGV 1 n            orders in the batch, no order id twice
--      2 deadline_ms  by the clock of this server, and not later than the one that home keeps;
--                     later, the whole batch is refused
--      3 margin_ms    time after its deadline at which a final spillover may be forgotten
--      4 segment      ITEM:SEGMENT, for the wake-up message
--      then columns of n: order ids, quantities, packed orders, rounds (1 or higher), homes (1: this
--      is the buyer's home)
-- Returns {'late', now_ms}       nothing was read
--         {'missing', now_ms}    the segment is not here, or has lost its decisions
--         {'repairing', now_ms}  the segment is halted for repair: nothing was read
--         {'ok', now_ms, epoch, available, entry, expires_ms, exceptions}
--         an order took its units unless `exceptions` (index, code, detail, ...) names it:
--           a  already decided: not declined, or declined in this round or a later one; detail is
--              the decision as it is stored
--           d  declined in this round
--           x  home does not know the order, and has not counted it: begin at `reserve_home`
-- Keeps  available + units taken = units put in; available >= 0; count of a buyer; a decision other
--        than `declined`, and the round of a declined one never falls
-- Cost   two HMGET, and one HSET, HSET, XADD, ZADD for the batch; O(n log spillovers)

local stock, decisions, outbox, spillovers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n, deadline, margin = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local segment = ARGV[4]
local id0, quantity0, packed0, round0, home0 = 4, 4 + n, 4 + 2 * n, 4 + 3 * n, 4 + 4 * n

-- Kinds of a stored decision, and the form of a declined one (quantity, latest deadline, round if
-- it is not the first).
local TAKEN, DECLINED, DECLINED_FORM = 'T', 'D', '^D(%d+):(%d+):?(%d*)$'
-- Codes of the reply for an order that takes nothing now.
local CODE_KNOWN, CODE_DECLINED, CODE_UNKNOWN = 'a', 'd', 'x'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end

local available, state, epoch, hold, last, repairing =
  unpack(redis.call('HMGET', stock, 'available', 'state', 'epoch', 'hold_ms', 'last', 'repairing'))
available = tonumber(available)
if not available then return {'missing', now} end
if repairing then return {'repairing', now} end
local open = state == 'open'
local expires = now + tonumber(hold)
local known = redis.call('HMGET', decisions, '', unpack(ARGV, id0 + 1, id0 + n))
if not known[1] then return {'missing', now} end

-- Everything is decided before anything is written: Redis does not roll a failed script back.
local exceptions, new_decisions, new_spillovers, taken, decided = {}, {}, {}, {}, {}
for i = 1, n do
  local id, decision, quantity = ARGV[id0 + i], known[i + 1], ARGV[quantity0 + i]
  local round, home = tonumber(ARGV[round0 + i]), ARGV[home0 + i] == '1'
  if decided[id] then return redis.error_reply('ERR order id twice in one batch') end
  decided[id] = true
  local asked, until_ms, declined_round = string.match(decision or '', DECLINED_FORM)
  until_ms, declined_round = tonumber(until_ms or 0), tonumber(declined_round or '') or 0
  local code, detail, record = nil, '', nil
  if home and not decision then
    code = CODE_UNKNOWN
  elseif decision and (asked ~= quantity or declined_round >= round) then
    code, detail = CODE_KNOWN, decision
  else
    local units, latest = tonumber(quantity), math.max(until_ms, deadline)
    local due = latest
    if open and available >= units then
      available = available - units
      record, due = TAKEN .. quantity .. ':' .. expires, latest + margin
      taken[#taken + 1] = ARGV[packed0 + i]
    else
      code, record = CODE_DECLINED, DECLINED .. quantity .. ':' .. latest .. ':' .. round
    end
    new_decisions[#new_decisions + 1], new_decisions[#new_decisions + 2] = id, record
    if home then
      new_spillovers[#new_spillovers + 1], new_spillovers[#new_spillovers + 2] =
        due, ARGV[packed0 + i]
    end
  end
  if code then
    local at = #exceptions
    exceptions[at + 1], exceptions[at + 2], exceptions[at + 3] = i - 1, code, detail
  end
end

local entry = last
if #taken > 0 then
  entry = redis.call('XADD', outbox, '*', 'k', 'taken', 'x', expires, 'o', table.concat(taken))
  redis.call('HSET', stock, 'available', available, 'last', entry)
  -- Two entries: the recorder had recorded all but its anchor and sleeps.
  if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
end
if #new_decisions > 0 then redis.call('HSET', decisions, unpack(new_decisions)) end
if #new_spillovers > 0 then redis.call('ZADD', spillovers, unpack(new_spillovers)) end
return {'ok', now, tonumber(epoch), available, entry, expires, exceptions}
