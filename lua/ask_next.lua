#!lua
-- Asks a batch of orders that every earlier segment of their ring has passed: take, pass, or repeat what was answered before.
--
-- Closes the race between "is there a unit, was this order answered already?" and "then take it". The buyer's limit was settled at home.
--
-- KEYS 1 stock    hash    available, state, epoch, hold_ms, last, mending
--      2 answers  hash    order id -> answer
--      3 outbox   stream  one entry for the whole batch
-- ARGV 1 n            orders in the batch, no order id twice
--      2 deadline_ms  by the clock of this server, and not later than home remembers; the whole batch is refused after it
--      3 segment      ITEM:SEGMENT, for the wake-up message
--      then columns of n: order ids, quantities, packed orders
-- Returns {'late', now_ms} | {'missing', now_ms} (it is not here, or has lost its answers) | {'mending', now_ms} | {'ok', now_ms, epoch, available, entry, expires_ms, exceptions}
--         where an order took its units unless `exceptions` (index, code, detail, ...) names it:
--           a  answered before; detail is the answer as it was stored
--           p  passed: this segment will never give units to this order
-- Keeps  available + units taken = units put in; available >= 0; a given answer never changes
-- Cost   one HMGET, and one HSET, HSET, XADD for the batch; O(n)

local stock, answers, outbox = KEYS[1], KEYS[2], KEYS[3]
local n, deadline, segment = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local id0, quantity0, packed0 = 3, 3 + n, 3 + 2 * n

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end

local s = redis.call('HMGET', stock, 'available', 'state', 'epoch', 'hold_ms', 'last', 'mending')
local available = tonumber(s[1])
if not available then return {'missing', now} end
if s[6] then return {'mending', now} end
-- A paused segment passes. It must not refuse: the order's buyer is counted at home, and a walk has to end somewhere.
local open = s[2] == 'open'
local expires = now + tonumber(s[4])
-- First the placeholder that open_segment leaves: without it the hash is not the one that was written to.
local known = redis.call('HMGET', answers, '', unpack(ARGV, id0 + 1, id0 + n))
if not known[1] then return {'missing', now} end

-- Everything is decided before anything is written: Redis does not roll a failed script back.
local exceptions, new_answers, taken, decided = {}, {}, {}, {}
-- Their lengths: for Lua to find the end of a list costs more than to append to it.
local answers_n, taken_n = 0, 0
for i = 1, n do
  local id, answer = ARGV[id0 + i], known[i + 1]
  if decided[id] then return redis.error_reply('ERR order id twice in one batch') end
  decided[id] = true
  local code, detail = nil, ''
  if answer then
    code, detail = 'a', answer
  else
    local quantity = ARGV[quantity0 + i]
    local units = tonumber(quantity)
    local record
    if open and available >= units then
      available = available - units
      record = 'T' .. quantity .. ':' .. expires
      taken_n = taken_n + 1
      taken[taken_n] = ARGV[packed0 + i]
    else
      code, record = 'p', 'P' .. quantity .. ':' .. deadline
    end
    new_answers[answers_n + 1], new_answers[answers_n + 2] = id, record
    answers_n = answers_n + 2
  end
  if code then
    local at = #exceptions
    exceptions[at + 1], exceptions[at + 2], exceptions[at + 3] = i - 1, code, detail
  end
end

local entry = s[5]
if taken_n > 0 then
  entry = redis.call('XADD', outbox, '*', 'k', 'taken', 'x', expires, 'o', table.concat(taken))
  redis.call('HSET', stock, 'available', available, 'last', entry)
  -- Two entries: the recorder had recorded all but its anchor and sleeps.
  if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
end
if answers_n > 0 then redis.call('HSET', answers, unpack(new_answers)) end
return {'ok', now, tonumber(s[3]), available, entry, expires, exceptions}
