// Retries and batches, against a server that answers by a script.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';

import {
  Client,
  Contract,
  InvalidInput,
  OrderBatcher,
  OutcomeUnknown,
  Refused,
  newCart,
  newOrder,
} from '../src/index.js';
import { pauseAfter } from '../src/retry.js';

const HELD = {
  id: '5e0c6a5c-0000-8000-8000-000000000000',
  item: 'vase',
  quantity: 1,
  state: 'held',
  price: 500,
  amount: 500,
  currency: 'EUR',
  version: 1,
  expires_at: '2026-11-23T15:04:05.123456789Z',
  a_later_field: true,
};
const CART = {
  id: '2d0f5c0b-53dc-8690-8a2b-6181b5fbc615',
  state: 'held',
  lines: [
    { item: 'vase', order: HELD.id, quantity: 3 },
    { item: 'bowl', order: HELD.id, quantity: 1 },
  ],
  amount: 950,
  currency: 'EUR',
  expires_at: HELD.expires_at,
};
const FAST = { deadline: 120_000, pause: 1, pauseMax: 10 };

/** Answers each request as the script says: status and body, or text as it is. */
async function serve(script, use) {
  const seen = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const body = JSON.parse(text);
    seen.push({ key: request.headers['idempotency-key'], body });
    const step = script.length > 1 ? script.shift() : script[0];
    const answer = typeof step === 'function' ? await step(body) : step;
    if (typeof answer === 'string') return request.socket.end(answer);
    const [status, value] = answer;
    return response.writeHead(status).end(JSON.stringify(value));
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  try {
    return await use(`http://127.0.0.1:${server.address().port}`, seen);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** Sends what has a key; returns what came of it, and the number of attempts. */
function attempt(script, wanted, send, retry) {
  return serve(script, async (url, seen) => {
    const buyer = new Client(url, { retry }).buyer('token');
    const [result] = await Promise.allSettled([send(buyer)]);
    for (const { key } of seen) assert.equal(key, wanted.key, 'every attempt has the same key');
    const bodies = seen.map(({ body }) => body);
    return { placed: result.value, error: result.reason, attempts: seen.length, bodies };
  });
}

function place(script, retry = FAST) {
  const order = newOrder('vase', 1);
  return attempt(script, order, (buyer) => buyer.place(order), retry);
}

const LINES = [{ item: 'vase', quantity: 2 }, { item: 'bowl', quantity: 1 }, { item: 'vase', quantity: 1 }];

function placeCart(script, retry = FAST) {
  const cart = newCart(LINES);
  return attempt(script, cart, (buyer) => buyer.placeCart(cart), retry);
}

test('an unknown outcome is repeated with the same key', async () => {
  const head = 'HTTP/1.1 201 Created\r\nContent-Length: 100\r\n';
  const script = [
    [503, { code: 'outcome_unknown' }],
    [502, "a proxy's page"],
    [408, { code: 'request_timeout' }],
    '',
    head.slice(0, 30),
    `${head}\r\n{`,
    [201, HELD],
  ];
  const length = script.length;
  const { placed, attempts } = await place(script);
  assert.deepEqual([placed.order.state, placed.recorded, attempts], ['held', true, length]);
  assert.equal(placed.order.expires_at.getTime(), Date.parse('2026-11-23T15:04:05.123Z'));
});

for (const [answer, kind] of [
  [[409, { code: 'sold_out', detail: 'no unit is left' }], Refused],
  [[500, { code: 'internal' }], OutcomeUnknown],
  [[302, {}], Contract],
  [[201, { ...HELD, item: 'jar' }], Contract],
  [[201, { ...HELD, quantity: 2 }], Contract],
  [[201, { ...HELD, expires_at: 'soon' }], Contract],
  [[201, { id: '1' }], Contract],
  [[201, []], Contract],
]) {
  test(`not repeated: ${JSON.stringify(answer).slice(0, 60)}`, async () => {
    const { error, attempts } = await place([answer]);
    assert.ok(error instanceof kind, String(error));
    assert.equal(attempts, 1);
    assert.equal(error.isCode('sold_out'), kind === Refused);
    assert.equal(error.isOutcomeUnknown, kind === OutcomeUnknown);
  });
}

test('an unknown outcome of a cart is repeated with the same key and lines', async () => {
  const script = [[503, { code: 'outcome_unknown' }], [502, "a proxy's page"], '', [201, CART]];
  const { placed, attempts, bodies } = await placeCart(script);
  assert.deepEqual([placed.cart.state, placed.cart.lines[0].quantity, attempts], ['held', 3, 4]);
  for (const body of bodies) assert.deepEqual(body, { lines: LINES });
});

test('a refusal that is not final does not hide the cart of an earlier attempt', async () => {
  const unknown = [503, { code: 'outcome_unknown' }];
  // From the sold-out cache of an instance, which knows nothing about other attempts.
  const shed = [409, { code: 'sold_out', item: 'vase', final: false }];
  const { placed, attempts } = await placeCart([unknown, shed, '', shed, [201, CART]]);
  assert.deepEqual([placed.cart.state, attempts], ['held', 5]);
  const refused = await placeCart([shed]);
  assert.ok(refused.error instanceof Refused && !refused.error.isFinal);
  assert.equal(refused.attempts, 1);
  await endsAtTheDeadline(3, 200, (retry) => placeCart([unknown, shed], retry));
});

/** The outcome is unknown after so many attempts or more. A busy machine needs a later deadline for them. */
async function endsAtTheDeadline(attemptsMin, deadline, place) {
  const pause = deadline / 10;
  const { error, attempts } = await place({ deadline, pause, pauseMax: pause });
  assert.ok(error.isOutcomeUnknown && error.isRetryable, String(error));
  assert.equal(error.attempts, attempts);
  if (attempts >= attemptsMin) return;
  assert.ok(deadline < 60_000, `${attempts} attempts in ${deadline} ms`);
  await endsAtTheDeadline(attemptsMin, 2 * deadline, place);
}

for (const [answer, kind] of [
  [[409, { code: 'sold_out', item: 'bowl' }], Refused],
  [[500, { code: 'internal' }], OutcomeUnknown],
  [[201, { ...CART, lines: CART.lines.slice(0, 1) }], Contract],
  [[201, { ...CART, lines: CART.lines.map((line) => ({ ...line, quantity: 2 })) }], Contract],
  [[201, { ...CART, lines: null }], Contract],
  [[201, []], Contract],
]) {
  test(`a cart is not repeated: ${JSON.stringify(answer).slice(0, 160)}`, async () => {
    const { error, attempts } = await placeCart([answer]);
    assert.ok(error instanceof kind, String(error));
    assert.equal(attempts, 1);
    if (kind === Refused) assert.equal(error.problem.item, 'bowl');
  });
}

test('the deadline ends the attempts', async () => {
  await endsAtTheDeadline(2, 1000, (retry) => place([[503, { code: 'unavailable' }]], retry));
});

test('pauses double up to the longest and respect Retry-After', () => {
  const policy = { deadline: 30_000, pause: 100, pauseMax: 1000 };
  for (const [attempts, least, most] of [[1, 50, 100], [2, 100, 200], [4, 400, 800], [99, 500, 1000]]) {
    const pause = pauseAfter(policy, attempts);
    assert.ok(least <= pause && pause <= most, `${attempts}: ${pause}`);
  }
  assert.equal(pauseAfter(policy, 1, 1), 1000);
  assert.equal(pauseAfter(policy, 1, 60), 1000);
});

test('bad input is never sent', () => {
  for (const key of ['', 'a b', 'é', 'a\n', 'x'.repeat(256)]) {
    assert.throws(() => newOrder('vase', 1, key), InvalidInput);
  }
  assert.throws(() => new Client('127.0.0.1:8080'), InvalidInput);
});

test('orders that wait travel together, and only the unknown ones again', async () => {
  const results = (body) => body.orders.map(() => ({ ...HELD, status: 201 }));
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  let begun;
  const begin = new Promise((resolve) => (begun = resolve));
  const slow = async (body) => {
    begun();
    await finished;
    return [200, { results: results(body) }];
  };
  const mixed = (body) => {
    const answers = results(body);
    answers[1] = { status: 503, code: 'outcome_unknown' };
    answers[2] = { status: 409, code: 'sold_out' };
    return [200, { results: answers }];
  };
  const last = (body) => [200, { results: results(body) }];
  await serve([slow, mixed, last], async (url, seen) => {
    const admin = new Client(url, { retry: FAST }).admin('token');
    const batcher = new OrderBatcher(admin, 'vase', { flights: 1 });
    const orders = [batcher.order('ann', 1, 'key-0')];
    await begin;
    for (let key = 1; key < 6; key += 1) orders.push(batcher.order('ann', 1, `key-${key}`));
    finish();
    const outcomes = await Promise.allSettled(orders);
    assert.ok(outcomes[3].reason.isCode('sold_out'));
    assert.equal(outcomes.filter(({ value }) => value?.order.state === 'held').length, 5);
    const sent = seen.map(({ body }) => body.orders.map(({ key }) => key));
    assert.deepEqual(sent, [['key-0'], ['key-1', 'key-2', 'key-3', 'key-4', 'key-5'], ['key-2']]);
  });
});
