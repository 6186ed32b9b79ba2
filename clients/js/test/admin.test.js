// What an admin and a buyer do besides orders, against a real service.
//
// `make test` starts the service and sets the variables of `service.test.js`. Without them this test is
// skipped.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';

import { Client, OrderBatcher, Refused, mintBuyer, newCart, newOrder } from '../src/index.js';

const {
  STOCKADE_DIRECT_URL: url,
  STOCKADE_ADMIN_TOKEN: adminToken,
  STOCKADE_JWT_SECRET: jwtSecret,
  STOCKADE_PAYMENT_SECRET: paymentSecret,
  STOCKADE_TEST_TIMEOUT: timeoutSeconds = '120',
} = process.env;
const skip = url ? false : 'no service: STOCKADE_DIRECT_URL is not set';
/** Milliseconds, longer than anything takes on a busy machine. */
const TIMEOUT = 1000 * Number(timeoutSeconds);

/** An item of 10 units, and its admin and a buyer. */
async function create() {
  const client = new Client(url, { retry: { deadline: TIMEOUT }, attemptTimeout: TIMEOUT });
  const item = `js-admin-${randomUUID().slice(0, 8)}`;
  const admin = client.admin(adminToken);
  await admin.createItem({ id: item, stock: 10, price: 1999, max_hold_seconds: 1800 });
  const buyer = client.buyer(mintBuyer(jwtSecret, `buyer-of-${item}`));
  return { item, admin, buyer, provider: () => client.paymentProvider(paymentSecret) };
}

/** What `read` returns once `fits` holds for it. */
async function settled(read, fits) {
  const until = Date.now() + TIMEOUT;
  for (;;) {
    const found = await read();
    if (fits(found) || Date.now() > until) return found;
    await setTimeout(50);
  }
}

test('stock is added, withdrawn and set', { skip }, async () => {
  const { item, admin } = await create();
  const withStock = async (stock) => {
    const isThere = (found) => found.stock === stock && found.withdrawing === 0;
    const found = await settled(() => admin.item(item), isThere);
    assert.equal(found.stock, stock);
    return found.version;
  };
  // The same key is the same change.
  for (let repeat = 0; repeat < 2; repeat += 1) await admin.addStock(item, 5, 'delivery-1');
  await withStock(15);
  for (let repeat = 0; repeat < 2; repeat += 1) await admin.withdrawStock(item, 3, 'count-1');
  const version = await withStock(12);
  await admin.setStock(item, 20, version);
  await withStock(20);
  await assert.rejects(
    admin.setStock(item, 30, version),
    (error) => error instanceof Refused && error.isCode('version_mismatch'),
  );
});

test('an item is changed, listed, closed and archived', { skip }, async () => {
  const { item, admin } = await create();
  const { version } = await admin.item(item);
  assert.equal((await admin.patchItem(item, { limit_per_buyer: 2 }, { version })).limit_per_buyer, 2);
  const listed = new Map();
  for await (const row of admin.items()) listed.set(row.id, row);
  assert.equal(listed.get(item).stock, 10);
  await admin.setState(item, 'closed');
  // What the ledger has not recorded yet stands against it.
  const archive = () =>
    admin.archiveItem(item).catch((error) => {
      if (!error.isCode('item_not_archivable')) throw error;
      return { pending: true };
    });
  const archived = await settled(archive, ({ pending }) => !pending);
  assert.equal(archived.state, 'archived');
  await assert.rejects(admin.dropItem(item), (error) => error.isCode('item_not_droppable'));
  const { erased, kept } = await admin.eraseBuyer(`stranger-of-${item}`);
  assert.deepEqual({ erased, kept }, { erased: 0, kept: 0 });
});

test('a buyer lists carts, and an admin extends and cancels them', { skip }, async () => {
  const { item, admin, buyer } = await create();
  const { cart } = await buyer.placeCart(newCart([{ item, quantity: 2 }]));
  const listed = [];
  for await (const { id } of buyer.carts()) listed.push(id);
  assert.deepEqual(listed, [cart.id]);
  assert.ok((await admin.extendCart(cart.id, 1800)).expires_at > cart.expires_at);
  assert.equal((await admin.cancelCart(cart.id)).state, 'cancelled');
  assert.equal((await admin.cart(cart.id)).state, 'cancelled');
});

test('an order costs the total of the shop', { skip }, async () => {
  const { item, admin, buyer, provider } = await create();
  const { order: dearer } = await buyer.place(newOrder(item, 1, { amount: 2494 }));
  const batcher = new OrderBatcher(admin, item);
  const { order: cheaper } = await batcher.order('ann', 1, 'key', { amount: 1499 });
  const [{ placed: free }] = await admin.placeBatch(item, [{ buyer: 'ann', quantity: 1, key: 'free', amount: 0 }]);
  const amounts = [(await buyer.order(dearer.id)).amount, cheaper.amount, free.order.amount];
  assert.deepEqual(amounts, [2494, 1499, 0]);
  await assert.rejects(
    provider().report({ payment: `price-${dearer.id}`, order: dearer.id, amount: 1999 }),
    (error) => error.isCode('amount_mismatch'),
  );
  for (const { id, amount } of [dearer, cheaper]) {
    const paid = await provider().report({ payment: `total-${id}`, order: id, amount });
    assert.equal(paid.state, 'confirmed');
  }
  await assert.rejects(
    buyer.place(newOrder(item, 1, { amount: 1998 })),
    (error) => error.isCode('invalid_request'),
  );
});

test('an admin places carts for a buyer, at any total', { skip }, async () => {
  const { item, admin, buyer, provider } = await create();
  const name = `buyer-of-${item}`;
  const cheaper = newCart([{ item }], { amount: 1499 });
  const { cart } = await admin.placeCart(name, cheaper);
  assert.equal((await buyer.cart(cart.id)).amount, 1499);
  assert.equal((await admin.placeCart(name, cheaper)).replayed, true);
  const unchecked = newCart([{ item }], { amount: 'unchecked' });
  const { cart: open } = await admin.placeCart(name, unchecked);
  assert.deepEqual([open.amount, open.amount_check], [1999, 'unchecked']);
  const paid = await provider().reportCart({ payment: `pay-${open.id}`, cart: open.id, amount: 777 });
  assert.deepEqual([paid.state, paid.amount], ['confirmed', 777]);
  assert.deepEqual((await admin.placeCart(name, unchecked)).cart, paid);
  await assert.rejects(
    buyer.placeCart(newCart([{ item }], { amount: 1998 })),
    (error) => error.isCode('invalid_request'),
  );
});

test('a webhook is tested and enabled', { skip }, async () => {
  const { admin } = await create();
  // Nothing listens there.
  const { id } = await admin.createWebhook('http://127.0.0.1:1/hook', ['order.held']);
  assert.equal((await admin.testWebhook(id)).delivered, false);
  await admin.enableWebhook(id);
  assert.ok((await admin.webhooks()).some((webhook) => webhook.id === id));
  await admin.removeWebhook(id);
});
