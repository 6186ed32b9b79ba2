// The client against a real service behind a proxy that drops answers, cuts connections and delays.
//
// `make test` starts both (lab/acceptance) and sets `STOCKADE_URL` (the proxy), `STOCKADE_DIRECT_URL`,
// `STOCKADE_ADMIN_TOKEN`, `STOCKADE_JWT_SECRET`, `STOCKADE_PAYMENT_SECRET`, `STOCKADE_TEST_TIMEOUT`
// and `STOCKADE_TEST_ATTEMPT_TIMEOUT`. Without them this test is skipped.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';

import { Client, OrderBatcher, Refused, mintBuyer, newCart, newOrder } from '../src/index.js';

const {
  STOCKADE_URL: url,
  STOCKADE_DIRECT_URL: directUrl,
  STOCKADE_ADMIN_TOKEN: adminToken,
  STOCKADE_JWT_SECRET: jwtSecret,
  STOCKADE_PAYMENT_SECRET: paymentSecret,
  STOCKADE_TEST_TIMEOUT: timeoutSeconds = '120',
  STOCKADE_TEST_ATTEMPT_TIMEOUT: attemptSeconds = '3',
} = process.env;
const skip = url ? false : 'no service: STOCKADE_URL is not set';

/** Intents of a wave. Half of them are orders of their own, half travel in batches. */
const WAVE = 100;
const [WAVES_MIN, WAVES_MAX] = [3, 60];

/** Milliseconds, longer than anything takes on a busy machine. */
const TIMEOUT = 1000 * Number(timeoutSeconds);

/** Shorter than the proxy holds some answers. */
const attemptTimeout = 1000 * Number(attemptSeconds);

const retry = { deadline: TIMEOUT, pause: 10, pauseMax: 200 };
const item = `js-${randomUUID().slice(0, 8)}`;

test('each intent ends as exactly one order', { skip }, async () => {
  const client = new Client(url, { retry, attemptTimeout });
  const admin = new Client(directUrl, { retry }).admin(adminToken);
  const terms = { price: 500, limit_per_buyer: 1, max_hold_seconds: 1800 };
  await admin.createItem({ id: item, stock: 10_000, ...terms });

  const placed = await placeAll(client);
  const replays = [...placed.values()].filter(({ replayed }) => replayed).length;
  assert.ok(replays > 0, 'the proxy has dropped no answer');
  const recorded = new Map();
  let count = 0;
  for await (const order of admin.itemOrders(item)) {
    recorded.set(order.buyer, order.id);
    count += 1;
  }
  assert.equal(count, placed.size);
  for (const [buyer, { order }] of placed) assert.equal(recorded.get(buyer), order.id);
  console.log(`js: ${placed.size} intents, ${replays} replays, ${count} orders`);

  const orders = [...placed.values()].map(({ order }) => order.id);
  await payAndCancel(client, admin, orders);
  await readEvents(client.admin(adminToken), orders, orders.slice(0, 20));
});

test('each intent ends as exactly one cart', { skip }, async () => {
  const client = new Client(url, { retry, attemptTimeout });
  const admin = new Client(directUrl, { retry }).admin(adminToken);
  const items = [`${item}-vase`, `${item}-bowl`];
  await admin.createItem({ id: items[0], stock: 10_000, price: 500, limit_per_buyer: 1, max_hold_seconds: 1800 });
  await admin.createItem({ id: items[1], stock: 10_000, price: 50, max_hold_seconds: 1800 });

  const bought = [];
  for (let number = 0; number < WAVES_MAX; number += 1) {
    const places = Array.from({ length: 40 }, (_, place) => 40 * number + place);
    bought.push(...(await Promise.all(places.map((place) => buyCart(client, items, place)))));
    if (bought.some(({ replayed }) => replayed)) break;
  }
  const replays = bought.filter(({ replayed }) => replayed).length;
  assert.ok(replays > 0, 'the proxy has dropped no answer');
  for (const [place, id] of items.entries()) {
    const expected = new Map(bought.map(({ cart }) => [cart.lines[place].order, cart.state]));
    const found = await ordersWithUnitsOrOf(admin, id, expected);
    const sorted = (map) => [...map].sort(([one], [other]) => (one < other ? -1 : 1));
    assert.deepEqual(sorted(found), sorted(expected), 'one order for each line, in its state');
    const { drift, oversold } = await admin.audit(id, { full: true });
    assert.deepEqual({ drift, oversold }, { drift: 0, oversold: 0 });
  }
  console.log(`js: ${bought.length} carts, ${replays} replays`);
});

/**
 * The states of the orders that are expected, and of the others that have units. A cart that was not
 * placed in time has none: what it had taken is released at once, or by a reconciler.
 */
async function ordersWithUnitsOrOf(admin, id, expected) {
  const until = Date.now() + TIMEOUT;
  for (;;) {
    const found = new Map();
    for await (const { id: order, state } of admin.itemOrders(id)) {
      const hasUnits = state === 'held' || state === 'confirmed';
      if (hasUnits || expected.has(order)) found.set(order, state);
    }
    if (found.size === expected.size || Date.now() > until) return found;
    await setTimeout(100);
  }
}

/** Places a cart and extends it; half of them are paid, half are cancelled. */
async function buyCart(client, items, place) {
  const { buyer, placed } = await placeCart(client, items, place);
  const { cart, replayed } = placed;
  assert.equal((await buyer.extendCart(cart.id, 1800)).state, 'held');
  const payment = { payment: `pay-${cart.id}`, cart: cart.id, amount: 600 };
  const ended =
    place % 2 === 0
      ? await client.paymentProvider(paymentSecret).reportCart(payment)
      : await buyer.cancelCart(cart.id);
  assert.equal(ended.state, place % 2 === 0 ? 'confirmed' : 'cancelled');
  assert.deepEqual(await buyer.cart(cart.id), ended);
  return { cart: ended, replayed };
}

/** Places a cart. One that a busy machine could not place in time is final: the next has a new key. */
async function placeCart(client, [vase, bowl], place) {
  const until = Date.now() + TIMEOUT;
  for (let attempt = 0; ; attempt += 1) {
    const buyer = client.buyer(mintBuyer(jwtSecret, `cart-buyer-${place}-${attempt}`));
    try {
      const cart = newCart([{ item: vase }, { item: bowl, quantity: 2 }]);
      return { buyer, placed: await buyer.placeCart(cart) };
    } catch (error) {
      if (!(error instanceof Refused && error.isCode('cart_timed_out')) || Date.now() > until) throw error;
    }
  }
}

/** Waves of orders, until a replay is the proof that an answer was lost, and its order was not. */
async function placeAll(client) {
  const batcher = new OrderBatcher(client.admin(adminToken), item);
  const placed = new Map();
  for (let number = 0; number < WAVES_MAX; number += 1) {
    const buyers = Array.from({ length: WAVE }, (_, place) => `buyer-${number}-${place}`);
    const intents = buyers.map((buyer, place) =>
      place % 2 === 0
        ? client.buyer(mintBuyer(jwtSecret, buyer)).place(newOrder(item, 1))
        : batcher.order(buyer, 1, `key-${buyer}`),
    );
    const results = await Promise.all(intents);
    buyers.forEach((buyer, place) => placed.set(buyer, results[place]));
    const isReplayed = [...placed.values()].some(({ replayed }) => replayed);
    if (number + 1 >= WAVES_MIN && isReplayed) break;
  }
  return placed;
}

async function payAndCancel(client, admin, orders) {
  const provider = client.paymentProvider(paymentSecret);
  const faultyAdmin = client.admin(adminToken);
  const paid = orders.slice(0, 20).map((order) =>
    provider.report({ payment: `pay-${order}`, order, amount: 500 }),
  );
  const cancelled = orders.slice(20, 40).map(async (order) => {
    await faultyAdmin.extendHold(order, 1800);
    return faultyAdmin.cancel(order);
  });
  for (const { state } of await Promise.all(paid)) assert.equal(state, 'confirmed');
  for (const { state } of await Promise.all(cancelled)) assert.equal(state, 'cancelled');
  const expected = { held: orders.length - 40, confirmed: 20, cancelled: 20 };
  for (const [state, count] of Object.entries(expected)) {
    let found = 0;
    for await (const order of admin.itemOrders(item, state)) found += order.state === state;
    assert.equal(found, count, state);
  }
  const { drift, oversold } = await admin.audit(item, { full: true });
  assert.deepEqual({ drift, oversold }, { drift: 0, oversold: 0 });
}

/** Follows the events through the proxy until each order has had its own. */
async function readEvents(admin, held, confirmed) {
  const missing = { 'order.held': new Set(held), 'order.confirmed': new Set(confirmed) };
  for await (const event of admin.events({ wait: 1 })) {
    if (event.subject !== item || !(event.kind in missing)) continue;
    for (const order of event.orders) {
      assert.ok(missing[event.kind].delete(order), `${event.kind} of ${order} came twice, or wrongly`);
    }
    if (Object.values(missing).every(({ size }) => size === 0)) break;
  }
}
