-- One order per request, each with a key of its own. Environment: ITEM, TOKENS (a file, a token per line), RUN (a name no other run has),
-- REQUESTS (ends after so many; else with the time), STATUSES (counts each status: wrk then reads every answer whole, which costs it).
-- The last line of the output is what came of it, as JSON.
local threads, all = 0, {}

function setup(thread)
  thread:set('number', threads)
  threads = threads + 1
  all[threads] = thread
end

function init()
  tokens, count, statuses = {}, 0, ''
  for token in io.lines(os.getenv('TOKENS')) do tokens[#tokens + 1] = token end
  path = '/v1/items/' .. os.getenv('ITEM') .. '/orders'
  prefix = os.getenv('RUN') .. '-' .. number .. '-'
  most = tonumber(os.getenv('REQUESTS') or '')
end

function request()
  count = count + 1
  if most and count >= most then wrk.thread:stop() end
  return wrk.format('POST', path, {
    ['Authorization'] = 'Bearer ' .. tokens[count % #tokens + 1],
    ['Content-Type'] = 'application/json',
    ['Idempotency-Key'] = prefix .. count,
  }, '{"quantity":1}')
end

if os.getenv('STATUSES') then
  local seen = {}
  -- Only strings and numbers can be asked of a thread when it has ended.
  function response(status)
    seen[status] = (seen[status] or 0) + 1
    local list = {}
    for code, n in pairs(seen) do list[#list + 1] = '"' .. code .. '":' .. n end
    statuses = table.concat(list, ',')
  end
end

function done(summary, latency)
  local errors, lists = summary.errors, {}
  for _, thread in ipairs(all) do
    local list = thread:get('statuses')
    if list ~= '' then lists[#lists + 1] = list end
  end
  io.write(string.format(
    '\n{"answers":%d,"micros":%d,"refused":%d,"broken":%d,"timeouts":%d,"p50_ms":%.3f,"p99_ms":%.3f,"statuses":{%s}}\n',
    summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write, errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000, lists[1] or ''))
end
