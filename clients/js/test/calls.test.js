// Every call of the API is in the client, and nothing else: both are held against the description.
//
// Each method is called. What it sends is looked up in the description by method and path.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { test } from 'node:test';

import { Client, InvalidInput, OrderBatcher, Refused, mintBuyer, newCart, newOrder } from '../src/index.js';

const description = JSON.parse(
  readFileSync(new URL('../../../docs/openapi.json', import.meta.url)),
);
const types = readFileSync(new URL('../src/index.d.ts', import.meta.url), 'utf8');

/** No calls of a shop: probes and Prometheus send them, and Stripe signs its events itself. */
const NOT_OF_A_CLIENT = ['getHealth', 'getReadiness', 'getMetrics', 'receiveStripeEvent'];
/** Methods that call nothing themselves. */
const QUIET = ['constructor', 'buyer', 'admin', 'paymentProvider', 'send', 'sendOnce', 'retry'];

const hold = { seconds: 60, session: 'cs-1' };
const lines = [{ buyer: 'ann', quantity: 1, key: 'key-1', amount: 1499 }];
const atTotal = { key: 'key-1', amount: 2494 };
const changes = { limit_per_buyer: 2, opens_at: null, closes_at: null, waves: null, price: 450 };
/** What each method is called with. */
const ARGUMENTS = {
  Client: { item: ['vase'], items: [['vase', 'jar']] },
  Buyer: {
    place: [newOrder('vase', 1, atTotal)],
    order: ['o-1'],
    cancel: ['o-1'],
    extendHold: ['o-1', hold],
    placeCart: [newCart([{ item: 'vase' }], atTotal)],
    cart: ['c-1'],
    cancelCart: ['c-1'],
    extendCart: ['c-1', hold],
    orders: [],
    carts: [],
  },
  PaymentProvider: {
    report: [{ payment: 'pay-1', order: 'o-1', amount: 500, currency: 'EUR' }],
    reportCart: [{ payment: 'pay-1', cart: 'c-1', amount: 500, currency: 'EUR' }],
  },
  Admin: {
    createItem: [{ id: 'vase', stock: 7, price: 500 }],
    item: ['vase'],
    items: [],
    setState: ['vase', 'open', { version: 3 }],
    patchItem: ['vase', changes, { version: 3 }],
    addStock: ['vase', 7, 'key-1', { version: 3 }],
    withdrawStock: ['vase', 7, 'key-1', { version: 3 }],
    setStock: ['vase', 7, 3],
    archiveItem: ['vase', { version: 3 }],
    dropItem: ['vase'],
    eraseBuyer: ['ann'],
    audit: ['vase', { full: true }],
    order: ['o-1'],
    cancel: ['o-1'],
    extendHold: ['o-1', hold],
    refund: ['o-1'],
    placeCart: ['ann', newCart([{ item: 'vase' }], { key: 'key-1', amount: 'unchecked' })],
    cart: ['c-1'],
    cancelCart: ['c-1'],
    extendCart: ['c-1', hold],
    refundCart: ['c-1'],
    refundCartLine: ['c-1', 'o-1'],
    itemOrders: ['vase', 'held'],
    journal: ['vase'],
    serviceJournal: [],
    refundsDue: [],
    refundDone: ['r-1'],
    placeBatch: ['vase', lines],
    placeBatchOnce: ['vase', lines],
    eventPage: [{ after: 'cursor' }],
    events: [{ after: 'cursor', wait: 0 }],
    createWebhook: ['https://shop.example/hook', ['order.held']],
    webhooks: [],
    removeWebhook: ['w-1'],
    enableWebhook: ['w-1'],
    testWebhook: ['w-1'],
  },
};
/** Who calls: the scheme in the description, or the header. */
const CALLERS = { Buyer: 'buyer', Admin: 'admin', PaymentProvider: 'Stockade-Signature', Client: '' };

/** The operations of the description: `{id, method, path, operation}`. */
const operations = Object.entries(description.paths)
  .flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => {
      return { id: operation.operationId, method: method.toUpperCase(), path, operation };
    }),
  )
  .filter(({ id }) => !NOT_OF_A_CLIENT.includes(id));

/** The operation that a request is. A fixed segment of a path wins over a name. */
function operationOf({ method, path }) {
  const fits = (template) =>
    new RegExp(`^${template.replaceAll(/\{\w+\}/g, '[^/]+').replaceAll('.', '\\.')}$`).test(path);
  const names = (template) => template.split('{').length;
  return operations
    .filter((one) => one.method === method && fits(one.path))
    .sort((one, other) => names(one.path) - names(other.path))[0];
}

/** The schemes of which each is enough, the header that proves a provider, or nothing. */
function callersOf({ security = [], parameters = [] }) {
  if (security.length > 0) return security.flatMap((scheme) => Object.keys(scheme));
  const isSigned = parameters.some(({ name }) => name === 'Stockade-Signature');
  return [isSigned ? 'Stockade-Signature' : ''];
}

/** Calls every method; returns what each has sent to a server that refuses everything. */
async function sendAll() {
  let seen = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const { method, headers } = request;
    const [path, query = ''] = request.url.split('?');
    seen.push({ method, path, query, headers, body });
    response.writeHead(403, { 'content-type': 'application/problem+json' });
    response.end('{"code":"forbidden"}');
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  const retry = { deadline: 0 };
  const client = new Client(`http://127.0.0.1:${server.address().port}`, { retry });
  const callers = [client, client.buyer('t'), client.admin('t'), client.paymentProvider('s')];
  const sent = [];
  for (const caller of callers) {
    const kind = caller.constructor.name;
    for (const [name, values] of Object.entries(ARGUMENTS[kind])) {
      seen = [];
      const result = caller[name](...values);
      await assert.rejects(typeof result.next === 'function' ? result.next() : result, Refused);
      assert.equal(seen.length, 1, name);
      sent.push({ kind, name, ...seen[0] });
    }
  }
  server.closeAllConnections();
  server.close();
  return sent;
}

test('every operation has a method for each of its callers', async () => {
  const found = new Set();
  for (const request of await sendAll()) {
    const operation = operationOf(request);
    assert.ok(operation, `${request.name} sends ${request.method} ${request.path}, which is no call`);
    found.add(`${operation.id} ${CALLERS[request.kind]}`);
  }
  const expected = operations.flatMap(({ id, operation }) =>
    callersOf(operation).map((caller) => `${id} ${caller}`),
  );
  // An admin reads an item as well, and sees more.
  assert.deepEqual([...found].sort(), [...expected, 'getItem admin'].sort());
});

test('what a method sends is what the description wants', async () => {
  for (const { name, headers, query, body, ...request } of await sendAll()) {
    const { operation } = operationOf(request);
    const named = (place) => (operation.parameters ?? []).filter((one) => one.in === place);
    const known = (place) => named(place).map((one) => one.name.toLowerCase());
    for (const one of named('header').filter(({ required }) => required)) {
      assert.ok(headers[one.name.toLowerCase()], `${name}: ${one.name}`);
    }
    for (const header of ['idempotency-key', 'if-match']) {
      if (header in headers) assert.ok(known('header').includes(header), `${name}: ${header}`);
    }
    for (const [parameter] of new URLSearchParams(query)) {
      assert.ok(known('query').includes(parameter), `${name}: ${parameter}`);
    }
    const content = operation.requestBody?.content['application/json'].schema.$ref;
    if (content === undefined) {
      assert.equal(body, '', name);
      continue;
    }
    const { properties, required = [] } = description.components.schemas[content.split('/').at(-1)];
    const fields = Object.keys(JSON.parse(body));
    assert.deepEqual(fields.filter((field) => !(field in properties)), [], name);
    assert.deepEqual(required.filter((field) => !fields.includes(field)), [], name);
  }
});

/** The names of all fields of a body, also of those in its lines. */
function names(body) {
  if (Array.isArray(body)) return body.flatMap(names);
  if (typeof body !== 'object' || body === null) return [];
  return [...Object.keys(body), ...Object.values(body).flatMap(names)];
}

test('what a placement can say is what the description has', async () => {
  const schemas = { placeOrder: ['NewOrder'], placeOrders: ['NewOrders', 'NewLine'], placeCart: ['NewCart', 'NewCartLine'] };
  const sent = Object.fromEntries(Object.keys(schemas).map((id) => [id, new Set()]));
  for (const { body, ...request } of await sendAll()) {
    const { id } = operationOf(request);
    if (id in sent) for (const name of names(JSON.parse(body))) sent[id].add(name);
  }
  for (const [id, parts] of Object.entries(schemas)) {
    const known = parts.flatMap((part) => Object.keys(description.components.schemas[part].properties));
    assert.deepEqual([...sent[id]].sort(), known.sort(), id);
  }
});

test('every method is called here, and has a type', () => {
  const client = new Client('http://127.0.0.1:1');
  for (const caller of [client, client.buyer('t'), client.admin('t'), client.paymentProvider('s')]) {
    const kind = caller.constructor.name;
    const methods = Object.getOwnPropertyNames(Object.getPrototypeOf(caller));
    const calls = methods.filter((name) => !QUIET.includes(name));
    assert.deepEqual(calls.sort(), Object.keys(ARGUMENTS[kind]).sort());
    const [, body] = types.match(new RegExp(`export class ${kind} \\{\n([^]*?)\n\\}`));
    const typed = [...body.matchAll(/^ {2}(\w+)\(/gm)].map(([, name]) => name);
    assert.deepEqual(typed.filter((name) => !QUIET.includes(name)).sort(), calls);
  }
});

test('what is no call of a client is in the description', () => {
  const ids = Object.values(description.paths).flatMap((methods) =>
    Object.values(methods).map(({ operationId }) => operationId),
  );
  for (const id of NOT_OF_A_CLIENT) assert.ok(ids.includes(id), id);
});

test('what cannot be a part of a request is InvalidInput, and is never sent', async () => {
  // Nothing listens there: what is sent anyway is OutcomeUnknown.
  const client = new Client('http://127.0.0.1:1', { retry: { deadline: 0 } });
  const admin = client.admin('t');
  for (const [field, call] of [
    ['key', () => newOrder('vase', 1, 17)],
    ['quantity', () => newOrder('vase', '1')],
    ['quantity', () => newOrder('vase', 1.5)],
    ['item', () => newOrder(17)],
    ['key', () => newOrder('vase', 1, null)],
    ['amount', () => newOrder('vase', 1, { amount: 19.99 })],
    ['amount', () => newCart([{ item: 'vase' }], { amount: 'free' })],
    ['amount', () => newCart([{ item: 'vase' }], { amount: '1999' })],
    ['amount', () => admin.placeBatch('vase', [{ buyer: 'ann', quantity: 1, key: 'k', amount: '7' }])],
    ['amount', () => new OrderBatcher(admin, 'vase').order('ann', 1, 'k', { amount: 1n })],
    ['buyer', () => admin.placeCart(17, newCart([{ item: 'vase' }]))],
    ['lines', () => newCart('vase')],
    ['item', () => newCart([null])],
    ['items', () => client.items('vase')],
    ['quantity', () => newCart([{ item: 'vase', quantity: 1n }])],
    ['token', () => client.buyer(undefined)],
    ['token', () => client.admin('a\r\nb')],
    ['secret', () => client.paymentProvider(17)],
    ['units', () => admin.addStock('vase', '7', 'key')],
    ['key', () => admin.withdrawStock('vase', 7)],
    ['version', () => admin.setStock('vase', 7)],
    ['body', () => admin.createItem({ id: 'vase', stock: 1n })],
    ['buyer', () => mintBuyer('secret', 17)],
    ['buyer', () => mintBuyer('secret', '')],
    ['buyer', () => mintBuyer('secret', '..')],
    ['buyer', () => mintBuyer('secret', 'a\n')],
    ['buyer', () => mintBuyer('secret', '\ud800')],
    ['buyer', () => mintBuyer('secret', 'é'.repeat(65))],
    ['secret', () => mintBuyer(undefined, 'ann')],
    ['lifetime', () => mintBuyer('secret', 'ann', { lifetime: '60' })],
    ['iss', () => mintBuyer('secret', 'ann', { issuer: 17 })],
    ['aud', () => mintBuyer('secret', 'ann', { audience: ['shop'] })],
  ]) {
    const isRefused = (error) => error instanceof InvalidInput && error.field === field;
    await assert.rejects(async () => call(), isRefused, `${field}: ${call}`);
  }
  assert.ok(mintBuyer('secret', 'é'.repeat(64)));
});
