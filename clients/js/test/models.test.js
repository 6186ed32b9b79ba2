// The models, against the description of the API.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { CART, LINE } from '../src/carts.js';
import { ORDER } from '../src/models.js';

const description = new URL('../../../docs/openapi.json', import.meta.url);
const { schemas } = JSON.parse(readFileSync(description)).components;
const types = readFileSync(new URL('../src/index.d.ts', import.meta.url), 'utf8');

test('every order has what the client checks', () => {
  for (const field of Object.keys(ORDER)) assert.ok(schemas.OrderBody.required.includes(field), field);
});

test('every cart and line has what the client checks', () => {
  for (const [checked, schema] of [[{ ...CART, lines: 'array' }, 'CartBody'], [LINE, 'LineBody']]) {
    for (const field of Object.keys(checked)) assert.ok(schemas[schema].required.includes(field), field);
  }
});

for (const [model, schema] of Object.entries({
  Cart: 'CartBody',
  CartLine: 'LineBody',
  CartPayment: 'NewCartPayment',
  Erased: 'ErasedBody',
  Event: 'CloudEvent',
  Item: 'ItemBody',
  ItemPatch: 'ItemPatch',
  Items: 'ItemsBody',
  JournalEntry: 'JournalRow',
  ListedItem: 'ItemRow',
  NewItem: 'NewItem',
  Order: 'OrderBody',
  Payment: 'NewPayment',
  RefundDue: 'RefundRow',
  ServiceJournalEntry: 'ActRow',
})) {
  test(`the type ${model} has the fields of ${schema}`, () => {
    const [, body] = types.match(new RegExp(`interface ${model} \\{\n([^]*?)\n\\}`));
    const fields = [...body.matchAll(/^ {2}(\w+)\??:/gm)].map(([, field]) => field);
    // `version` of an item comes from its `ETag`, `pending` from the status; the others are derived.
    const own = { Item: ['version', 'pending'], Event: ['kind', 'orders', 'cart'] }[model] ?? [];
    const known = Object.keys(schemas[schema].properties);
    assert.deepEqual(fields.filter((field) => ![...known, ...own].includes(field)), []);
    assert.ok(fields.length > 1);
  });
}
