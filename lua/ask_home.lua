#!lua
-- Asks a batch of orders at their buyers' home segment: take, pass, or repeat what was answered before.
--
-- Closes the race between "is there a unit, has this buyer had enough, was this order answered already?" and "then take it".
--
-- KEYS 1 stock    hash    available, limit, state, opens_ms, closes_ms, epoch, hold_ms, last, segments, mending
--      2 answers  hash    order id -> answer
--      3 buyers   hash    buyer id -> units counted against the limit
--      4 outbox   stream  one entry for the whole batch
--      5 walks    zset    unfinished walks, by the millisecond at which they fall due
-- ARGV 1 n            orders in the batch, no order id twice
--      2 deadline_ms  by the clock of this server; the whole batch is refused after it
--      3 margin_ms    how long after its deadline a final walk may be forgotten
--      4 segment      ITEM:SEGMENT, for the wake-up message
--      then columns of n: order ids, buyer ids, quantities, packed orders
-- Returns {'late', now_ms}                  nothing was looked at
--         {'missing', now_ms}               the segment does not exist here, or has lost its answers or its counts
--         {'mending', now_ms}               it is being mended: nothing was looked at
--         {'ok', now_ms, epoch, available, entry, expires_ms, state, opens_ms, closes_ms, exceptions}
--         where an order took its units unless `exceptions` (index, code, detail, ...) names it:
--           a  answered before; detail is the answer as it was stored
--           n  not open
--           l  the buyer's limit is reached
--           p  passed: this segment will never give units to this order
--           s  sold out: passed, and there is no other segment to ask
-- Keeps  available + units taken = units put in; available >= 0; count of a buyer <= limit; a given answer never changes
-- Cost   three HMGET, and one HSET, HSET, HSET, XADD for the batch; O(n)

local stock, answers, buyers, outbox, walks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local n, deadline, margin, segment = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local id0, buyer0, quantity0, packed0 = 4, 4 + n, 4 + 2 * n, 4 + 3 * n

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > deadline then return {'late', now} end

local s = redis.call('HMGET', stock, 'available', 'limit', 'state', 'opens_ms', 'closes_ms', 'epoch', 'hold_ms', 'last', 'segments', 'mending')
local available = tonumber(s[1])
if not available then return {'missing', now} end
if s[10] then return {'mending', now} end
local limit, opens, closes = tonumber(s[2]), tonumber(s[4]), tonumber(s[5])
local open = s[3] == 'open' and now >= opens and (closes == 0 or now < closes)
local alone = s[9] == '1'
local expires = now + tonumber(s[7])

-- First the placeholder that open_segment leaves: without it the hash is not the one that was written to. Who has lost counts must not count anew.
local known = redis.call('HMGET', answers, '', unpack(ARGV, id0 + 1, id0 + n))
local counts = redis.call('HMGET', buyers, '', unpack(ARGV, buyer0 + 1, buyer0 + n))
if not (known[1] and counts[1]) then return {'missing', now} end

-- Everything is decided before anything is written: Redis does not roll a failed script back.
local exceptions, new_answers, new_counts, new_walks, taken = {}, {}, {}, {}, {}
-- Their lengths: for Lua to find the end of a list costs more than to append to it.
local answers_n, counts_n, walks_n, taken_n = 0, 0, 0, 0
local decided, counted, held = {}, {}, {}
for i = 1, n do
  local id, answer = ARGV[id0 + i], known[i + 1]
  if decided[id] then return redis.error_reply('ERR order id twice in one batch') end
  decided[id] = true
  local code, detail = nil, ''
  if answer then
    code, detail = 'a', answer
    if string.byte(answer) == 80 then -- P: home remembers the latest deadline that any attempt presented
      local quantity, until_ms = string.match(answer, '^P(%d+):(%d+)$')
      -- Another quantity is another request under the same key: it is refused, and must leave no walk of its own in the list.
      if quantity == ARGV[quantity0 + i] and tonumber(until_ms) < deadline then
        new_answers[answers_n + 1], new_answers[answers_n + 2] = id, 'P' .. quantity .. ':' .. deadline
        new_walks[walks_n + 1], new_walks[walks_n + 2] = deadline, ARGV[packed0 + i]
        answers_n, walks_n = answers_n + 2, walks_n + 2
      end
    end
  elseif not open then
    code = 'n'
  else
    local buyer, quantity = ARGV[buyer0 + i], ARGV[quantity0 + i]
    local units = tonumber(quantity)
    local count = (counted[buyer] or tonumber(counts[i + 1] or 0)) + units
    local takes = available >= units
    if limit > 0 and count > limit then
      code = 'l'
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
          record = 'T' .. quantity .. ':' .. expires
          held[quantity] = record
        end
        taken_n = taken_n + 1
        taken[taken_n] = ARGV[packed0 + i]
      elseif alone then
        code, record = 's', 'S' .. quantity .. ':' .. deadline
        new_walks[walks_n + 1], new_walks[walks_n + 2] = deadline + margin, ARGV[packed0 + i]
        walks_n = walks_n + 2
      else
        code, record = 'p', 'P' .. quantity .. ':' .. deadline
        new_walks[walks_n + 1], new_walks[walks_n + 2] = deadline, ARGV[packed0 + i]
        walks_n = walks_n + 2
      end
      new_answers[answers_n + 1], new_answers[answers_n + 2] = id, record
      answers_n = answers_n + 2
    end
  end
  if code then
    local at = #exceptions
    exceptions[at + 1], exceptions[at + 2], exceptions[at + 3] = i - 1, code, detail
  end
end

local entry = s[8]
if taken_n > 0 then
  entry = redis.call('XADD', outbox, '*', 'k', 'taken', 'x', expires, 'o', table.concat(taken))
  redis.call('HSET', stock, 'available', available, 'last', entry)
  -- Two entries: the recorder had recorded all but its anchor and sleeps.
  if redis.call('XLEN', outbox) == 2 then redis.pcall('PUBLISH', 'stockade:outbox', segment) end
end
if counts_n > 0 then redis.call('HSET', buyers, unpack(new_counts)) end
if answers_n > 0 then redis.call('HSET', answers, unpack(new_answers)) end
if walks_n > 0 then redis.call('ZADD', walks, unpack(new_walks)) end
return {'ok', now, tonumber(s[6]), available, entry, expires, s[3], opens, closes, exceptions}
