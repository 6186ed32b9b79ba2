// Retries and batches, against a server that answers by a script.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';

import {
  Client,
  Contract,
  InvalidInput,
  NoLongerHeld,
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

/** Answers each request as the script says: status, body and perhaps headers, or raw text. */
async function serve(script, use) {
  const seen = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const body = text && JSON.parse(text);
    seen.push({ key: request.headers['idempotency-key'], path: request.url, body });
    const step = script.length > 1 ? script.shift() : script[0];
    const answer = typeof step === 'function' ? await step(body) : step;
    if (typeof answer === 'string') return request.socket.end(answer);
    const [status, value, headers] = answer;
    const page = typeof value === 'string' && value.startsWith('<');
    const type = status >= 400 ? 'application/problem+json' : 'application/json';
    const all = { 'content-type': type, ...headers };
    return response.writeHead(status, all).end(page ? value : JSON.stringify(value));
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

for (const [amount, more, fits] of [
  [2494, {}, true],
  [1999, {}, false],
  [0, {}, false],
  ['unchecked', {}, false],
  ['unchecked', { amount_check: 'unchecked' }, true],
  [2494, { amount_check: 'unchecked' }, false],
  [undefined, {}, true],
]) {
  test(`asked for the amount ${amount}, got 2494 ${JSON.stringify(more)}`, async () => {
    const line = { item: 'vase', order: 'o-1', quantity: 1 };
    const held = { ...HELD, amount: 2494, lines: [line], ...more };
    await serve([[201, held]], async (url, seen) => {
      const client = new Client(url, { retry: FAST });
      const cart = newCart([{ item: 'vase' }], { amount });
      const calls = [() => client.admin('token').placeCart('ann', cart)];
      if (amount !== 'unchecked' && !more.amount_check) {
        calls.push(() => client.buyer('token').place(newOrder('vase', 1, { amount })));
      }
      for (const call of calls) {
        if (fits) await call();
        else await assert.rejects(call(), Contract);
      }
      assert.equal(seen.length, calls.length);
    });
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
  if (attempts >= attemptsMin) return error;
  assert.ok(deadline < 60_000, `${attempts} attempts in ${deadline} ms`);
  return endsAtTheDeadline(attemptsMin, 2 * deadline, place);
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
  assert.equal(pauseAfter(policy, 1, 60), 60_000, 'the service knows better');
});

test('bad input is never sent', () => {
  for (const key of ['', 'a b', 'é', 'a\n', 'x'.repeat(256)]) {
    assert.throws(() => newOrder('vase', 1, key), InvalidInput);
  }
  assert.throws(() => new Client('127.0.0.1:8080'), InvalidInput);
});

test('a name cannot escape from its path segment', async () => {
  // Nothing listens there: what is sent anyway is `OutcomeUnknown`.
  const client = new Client('http://127.0.0.1:1', { retry: { deadline: 0 } });
  const [buyer, admin] = [client.buyer('token'), client.admin('token')];
  const provider = client.paymentProvider('secret');
  for (const name of ['', '.', '..', undefined]) {
    for (const call of [
      () => client.item(name),
      async () => buyer.place(newOrder(name, 1)),
      () => buyer.cancel(name),
      () => buyer.cancelCart(name),
      () => provider.report({ payment: 'pay-1', order: name }),
      () => provider.reportCart({ payment: 'pay-1', cart: name }),
      () => admin.placeBatch(name, []),
      async () => admin.itemOrders(name).next(),
      () => admin.refundDone(name),
      () => admin.removeWebhook(name),
    ]) {
      await assert.rejects(call, InvalidInput, `${call} ${name}`);
    }
  }
  await serve([[200, { id: 'a/..' }]], async (url, seen) => {
    await new Client(url).item('a/..');
    assert.equal(seen[0].path, '/v1/items/a%2F..');
  });
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

/** JSON of a gateway, whose codes are not the service's. */
const GATEWAY = { 'content-type': 'application/json; charset=utf-8' };
/**
 * Answers that do not come from the decision on the key: of the service's own checks before it, of a
 * gateway with codes of its own, and of proxies with pages.
 */
const UNDECIDED = [
  [409, { code: 'sold_out' }, GATEWAY],
  [503, { code: 'unavailable' }, GATEWAY],
  [400, { code: 'invalid_request', field: 'quantity' }],
  [401, { code: 'unauthorized' }],
  [403, { code: 'forbidden' }],
  [404, { code: 'item_not_found' }],
  [404, { message: 'no Route matched with those values' }],
  [409, { code: 409, status: 'Conflict' }],
  [409, { code: 'a_code_of_later' }],
  [409, '<html>conflict</html>'],
  [429, { code: 'too_many_requests' }],
  [503, { code: 'unavailable' }],
  [429, '<html>slow down</html>'],
  [302, '<html>moved</html>'],
  [200, '<html>please log in</html>'],
  [200, []],
  [200, null],
];
/** What loses an attempt: it may have taken its units. */
const LOST = [
  [503, { code: 'unavailable' }, GATEWAY],
  '',
  'HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{',
  [502, '<html>bad gateway</html>'],
  [503, { code: 'outcome_unknown' }],
  [504, { message: 'upstream timed out' }],
];
const name = (answer) => JSON.stringify(answer).slice(0, 60);

for (const lost of LOST) {
  test(`no other answer hides the order of a lost attempt: ${name(lost)}`, async () => {
    const { placed, attempts } = await place([lost, ...UNDECIDED, [201, HELD]]);
    assert.deepEqual([placed.order.state, attempts], ['held', UNDECIDED.length + 2]);
  });

  test(`a decision settles a lost attempt: ${name(lost)}`, async () => {
    for (const code of ['sold_out', 'buyer_limit_reached', 'not_open', 'idempotency_key_reused']) {
      const script = [lost, [401, { code: 'unauthorized' }], [409, { code }]];
      const { error, attempts } = await place(script);
      assert.ok(error instanceof Refused && error.settlesKey, String(error));
      assert.equal(attempts, 3);
    }
  });
}

for (const answer of UNDECIDED) {
  test(`after a lost attempt it stays unknown at the deadline: ${name(answer)}`, async () => {
    const error = await endsAtTheDeadline(2, 200, (retry) => place(['', answer], retry));
    assert.ok(error.mayHaveRun);
  });

  if (answer[0] < 400 || answer[0] > 499) continue;
  test(`before a lost attempt it is a refusal: ${name(answer)}`, async () => {
    // The service says that nothing ran, so the first attempt is not lost.
    const { error, attempts } = await place([[503, { code: 'unavailable' }], answer]);
    assert.ok(error instanceof Refused && !error.settlesKey, String(error));
    assert.equal(attempts, 2);
  });
}

test('a success that is no order leaves it unknown', async () => {
  for (const answer of [[200, { error: 'please log in' }], [201, { ...HELD, item: 'jar' }]]) {
    const { placed, attempts } = await place(['', answer, [201, HELD]]);
    assert.deepEqual([placed.order.state, attempts], ['held', 3]);
    const error = await endsAtTheDeadline(2, 200, (retry) => place(['', answer], retry));
    assert.ok(error.answer instanceof Contract, String(error));
    assert.ok((await place([answer])).error instanceof Contract);
  }
});

test("a proxy's page leaves a lost change unknown", async () => {
  const page = [200, { error: 'please log in' }];
  for (const call of [
    (client) => client.buyer('token').cancel(HELD.id),
    (client) => client.buyer('token').extendHold(HELD.id, 60),
    (client) => client.buyer('token').cancelCart(CART.id),
    (client) => client.paymentProvider('secret').report({ payment: 'pay-1', order: HELD.id }),
    (client) => client.admin('token').refund(HELD.id),
    (client) => client.admin('token').createItem({ id: 'vase', stock: 9 }),
    (client) => client.admin('token').setState('vase', 'closed'),
    (client) => client.admin('token').refundDone('7'),
    (client) => client.admin('token').removeWebhook('7'),
  ]) {
    const send = (retry) =>
      serve(['', page], async (url, seen) => {
        const error = await call(new Client(url, { retry })).catch((thrown) => thrown);
        return { error, attempts: seen.length };
      });
    const error = await endsAtTheDeadline(2, 200, send);
    assert.ok(error.answer instanceof Contract, `${call}: ${error}`);
  }
});

test('a lost line of a batch says nothing about the others', async () => {
  const lost = { status: 503, code: 'outcome_unknown' };
  const refused = { status: 400, code: 'invalid_request' };
  const orders = ['ann', 'bob'].map((buyer) => ({ buyer, quantity: 1, key: 'key' }));
  for (const [results, kinds] of [
    [[lost, refused], [OutcomeUnknown, Refused]],
    [[refused, lost], [Refused, OutcomeUnknown]],
  ]) {
    await serve([[200, { results }]], async (url) => {
      const placed = await new Client(url, { retry: FAST }).admin('token').placeBatch('vase', orders);
      assert.deepEqual(placed.map(({ error }) => error.constructor), kinds);
    });
  }
});

test('a familiar code of a gateway says nothing', async () => {
  const { error } = await place([[503, { code: 'unavailable' }, GATEWAY]], { deadline: 0 });
  assert.ok(error.mayHaveRun && error.problem.code === '', String(error));
  const refused = (await place([[409, { code: 'sold_out', final: false }, GATEWAY]])).error;
  assert.ok(refused instanceof Refused && refused.isFinal && !refused.settlesKey);
  // A page in the place of a whole batch has no lines of the service.
  const page = [200, { results: [{ status: 409, code: 'sold_out' }] }, { 'content-type': 'text/html' }];
  await serve([page], async (url) => {
    const admin = new Client(url, { retry: FAST }).admin('token');
    const [line] = await admin.placeBatch('vase', [{ buyer: 'ann', quantity: 1, key: 'key' }]);
    assert.ok(!line.error.settlesKey);
  });
});

test('final counts for a decision only', async () => {
  assert.ok((await place([[401, { code: 'unauthorized', final: false }]])).error.isFinal);
});

test('a hold is extended by seconds, by a session, or by both', async () => {
  await serve([[200, HELD]], async (url, seen) => {
    const buyer = new Client(url, { retry: FAST }).buyer('token');
    for (const hold of [60, { session: 'cs_1' }, { seconds: 60, session: 'cs_1' }]) {
      await buyer.extendHold(HELD.id, hold);
    }
    const bodies = [{ seconds: 60 }, { session: 'cs_1' }, { seconds: 60, session: 'cs_1' }];
    assert.deepEqual(seen.map(({ body }) => body), bodies);
  });
});

test('without a lost attempt nothing may have run', async () => {
  const { error } = await place([[503, { code: 'unavailable' }]], { deadline: 0 });
  assert.ok(error.isOutcomeUnknown && !error.mayHaveRun, String(error));
});

test('the error tells what came after the lost attempt', async () => {
  const { error, attempts } = await place(['', [401, { code: 'unauthorized' }, { 'retry-after': '600' }]]);
  assert.ok(error instanceof OutcomeUnknown && error.answer.isCode('unauthorized'), String(error));
  assert.deepEqual([attempts, error.attempts, error.retryAfter], [2, 2, 600]);
  assert.match(error.message, /unauthorized/);
  assert.ok(!error.settlesKey);
});

test('a lost read leaves nothing behind', async () => {
  await serve(['', [404, { code: 'order_not_found' }]], async (url) => {
    const buyer = new Client(url, { retry: FAST }).buyer('token');
    await assert.rejects(buyer.order(HELD.id), Refused);
  });
});

test('the lines of a batch share its lost attempt', async () => {
  const refused = { status: 400, code: 'invalid_request' };
  const soldOut = { status: 409, code: 'sold_out' };
  const answer = [200, { results: [refused, soldOut, { ...HELD, status: 201 }] }];
  const orders = ['ann', 'bob', 'cleo'].map((buyer) => ({ buyer, quantity: 1, key: 'key' }));
  for (const [script, first] of [[[answer], Refused], [['', answer], OutcomeUnknown]]) {
    await serve(script, async (url) => {
      const admin = new Client(url, { retry: FAST }).admin('token');
      const results = await admin.placeBatch('vase', orders);
      assert.ok(results[0].error instanceof first, String(results[0].error));
      assert.ok(results[1].error instanceof Refused && results[2].placed);
    });
  }
});

test('a batcher remembers the lost attempt of an order', async () => {
  const line = (result) => [200, { results: [result] }];
  const script = [
    line({ status: 503, code: 'outcome_unknown' }),
    line({ status: 400, code: 'invalid_request' }),
    [401, '<html>'],
    line({ ...HELD, status: 201 }),
  ];
  const { length } = script;
  await serve(script, async (url, seen) => {
    const batcher = new OrderBatcher(new Client(url, { retry: FAST }).admin('token'), 'vase');
    const { order } = await batcher.order('ann', 1, 'key');
    assert.deepEqual([order.state, seen.length], ['held', length]);
  });
});

test('a pause beyond the deadline ends the attempts', async () => {
  const answer = [503, { code: 'unavailable' }, { 'retry-after': '600' }];
  const { error, attempts } = await place([answer]);
  assert.deepEqual([attempts, error.retryAfter, error.isOutcomeUnknown], [1, 600, true]);
});

test('a Retry-After that is no number of seconds counts for nothing', async () => {
  for (const value of ['soon', '-1', '1.5', '9'.repeat(500)]) {
    const answer = [503, { code: 'unavailable' }, { 'retry-after': value }];
    assert.ok((await place([answer, [201, HELD]])).placed, value);
  }
});

for (const state of ['cancelled', 'expired', 'refund_due', 'refunded']) {
  test(`a key whose order or cart is ${state} is no purchase`, async () => {
    const replayed = { 'idempotent-replayed': 'true' };
    const { error } = await place(['', [201, { ...HELD, state }, replayed]]);
    assert.ok(error instanceof NoLongerHeld, String(error));
    assert.deepEqual([error.order.id, error.state, error.cart], [HELD.id, state, undefined]);
    assert.ok(error.settlesKey && !error.isOutcomeUnknown);
    assert.match(error.message, /new key/);
    const ofCart = (await placeCart([[201, { ...CART, state }, replayed]])).error;
    assert.ok(ofCart instanceof NoLongerHeld, String(ofCart));
    assert.deepEqual([ofCart.cart.id, ofCart.state, ofCart.order], [CART.id, state, undefined]);
  });
}

test('a paid order is returned', async () => {
  const { placed } = await place([[201, { ...HELD, state: 'confirmed' }, { 'idempotent-replayed': 'true' }]]);
  assert.ok(placed.replayed && placed.order.state === 'confirmed');
});

for (const [tag, version] of [
  ['"3"', 3],
  ['W/"3"', 3],
  ['"3-gzip"', 3],
  ['"3;br"', 3],
  ['W/"x"', undefined],
  ['"9a"', undefined],
]) {
  test(`the version of the ETag ${tag} is ${version}`, async () => {
    await serve([[200, { id: 'vase' }, { etag: tag }]], async (url) => {
      const item = await new Client(url, { retry: FAST }).admin('token').item('vase');
      assert.equal(item.version, version);
    });
  });
}
