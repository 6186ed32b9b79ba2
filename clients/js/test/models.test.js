// The models, against the description of the API.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import * as fields from '../src/fields.js';

const description = new URL('../../../docs/openapi.json', import.meta.url);
const { schemas } = JSON.parse(readFileSync(description)).components;
const types = readFileSync(new URL('../src/types.d.ts', import.meta.url), 'utf8');

/** The schema of each model. */
const OF_MODELS = {
  Audit: 'AuditReport',
  AuditedSegment: 'SegmentReport',
  BuyerOrder: 'NewLine',
  BuyerOrderOptions: 'NewLine',
  Cart: 'CartBody',
  CartLine: 'LineBody',
  CartPayment: 'NewCartPayment',
  Erased: 'ErasedBody',
  Event: 'CloudEvent',
  EventPage: 'EventPage',
  Item: 'ItemBody',
  ItemPatch: 'ItemPatch',
  Items: 'ItemsBody',
  JournalEntry: 'JournalRow',
  ListedItem: 'ItemRow',
  ListedOrder: 'OrderRow',
  NewItem: 'NewItem',
  NewOrder: 'NewOrder',
  NewOrderOptions: 'NewOrder',
  NewWave: 'NewWave',
  NextWave: 'NextWave',
  Order: 'OrderBody',
  OrdersChecked: 'OrdersChecked',
  OrdersFault: 'OrdersFault',
  Payment: 'NewPayment',
  RefundDue: 'RefundRow',
  RegisteredWebhook: 'WebhookBody',
  Segment: 'SegmentBody',
  ServiceJournalEntry: 'ActRow',
  Wave: 'WaveBody',
  WebhookTest: 'WebhookTest',
};
/** From the header `ETag`, and the status; for the path and the header `Idempotency-Key`. */
const OWN = { Item: ['version', 'pending'], NewOrder: ['item', 'key'], NewOrderOptions: ['key'] };
/** The same in every event, and what are arguments of their own. */
const LEFT_OUT = {
  Event: ['specversion', 'source', 'datacontenttype'],
  BuyerOrderOptions: ['buyer', 'quantity', 'key'],
  NewOrderOptions: ['quantity'],
};

/** The declarations of the fields of a model. */
function bodyOf(model) {
  const declared = new RegExp(`export (?:interface|type) ${model}\\b[^{;]*{\n([^]*?)\n}`);
  return types.match(declared)[1];
}

for (const [model, schema] of Object.entries(OF_MODELS)) {
  test(`the type ${model} has the fields of ${schema}, and no other`, () => {
    const found = [...bodyOf(model).matchAll(/^ {2}(?:readonly )?(\w+)\??:/gm)].map(([, field]) => field);
    const described = Object.keys(schemas[schema].properties);
    const expected = [...described, ...(OWN[model] ?? [])].filter(
      (field) => !LEFT_OUT[model]?.includes(field),
    );
    assert.deepEqual(found.sort(), expected.sort());
  });
}

test('no model and no words are forgotten', () => {
  const all = types.matchAll(/^export (?:interface|type) (\w+)/gm);
  const declared = [...all].map(([, name]) => name);
  const words = declared.filter((name) => schemas[name]?.enum);
  assert.deepEqual(declared.sort(), [...Object.keys(OF_MODELS), ...words].sort());
  assert.ok(words.length > 5);
  for (const name of words) {
    const [, found] = types.match(new RegExp(`export type ${name} =([^;]*);`));
    assert.deepEqual([...found.matchAll(/'(\w+)'/g)].map(([, word]) => word), schemas[name].enum);
  }
});

test('the client checks what answers always have', () => {
  const { ORDER, CART, CART_LINE, ITEMS, REFUND_DUE } = fields;
  for (const [checked, schema] of [
    [ORDER, 'OrderBody'],
    [CART, 'CartBody'],
    [CART_LINE, 'LineBody'],
    [ITEMS, 'ItemsBody'],
    [REFUND_DUE, 'RefundRow'],
  ]) {
    const { required, properties } = schemas[schema];
    const expected = required.filter((field) => !properties[field].type?.includes?.('null'));
    assert.deepEqual(Object.keys(checked), expected);
  }
});

test('the times of all answers become dates', () => {
  for (const [model, schema] of Object.entries(OF_MODELS)) {
    for (const [, field] of bodyOf(model).matchAll(/^ {2}(\w+)\??: Date/gm)) {
      assert.ok(fields.TIMES.includes(field), field);
      assert.equal(schemas[schema].properties[field].format, 'date-time', `${model}.${field}`);
    }
  }
});
