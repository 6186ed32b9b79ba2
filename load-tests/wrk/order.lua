-- One order per request, each with a key of its own. Environment: ITEM, TOKENS (a file, a token per line), RUN (a name no other run has).
local threads = 0

function setup(thread)
  thread:set('number', threads)
  threads = threads + 1
end

function init()
  tokens, count = {}, 0
  for token in io.lines(os.getenv('TOKENS')) do tokens[#tokens + 1] = token end
  path = '/items/' .. os.getenv('ITEM') .. '/orders'
  prefix = os.getenv('RUN') .. '-' .. number .. '-'
end

function request()
  count = count + 1
  return wrk.format('POST', path, {
    ['Authorization'] = 'Bearer ' .. tokens[count % #tokens + 1],
    ['Content-Type'] = 'application/json',
    ['Idempotency-Key'] = prefix .. count,
  }, '{"quantity":1}')
end
