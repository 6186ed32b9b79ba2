// Signatures and tokens, against values that others have computed.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { InvalidSignature, Webhook, mintBuyer, signPayment } from '../src/index.js';

const vectors = JSON.parse(readFileSync(new URL('../../vectors.json', import.meta.url)));
const at = (seconds) => new Date(seconds * 1000);

test('a minted token is what others compute', () => {
  for (const vector of [vectors.token, vectors.token_for_an_audience]) {
    const { secret, buyer, expires, token, issuer, audience } = vector;
    const options = { issuer, audience, lifetime: 60, now: at(expires - 60) };
    assert.equal(mintBuyer(secret, buyer, options), token);
  }
});

test('the signature of a payment is what others compute', () => {
  const { secret, body, now, signature } = vectors.payment;
  assert.equal(signPayment(secret, body, { now: at(now) }), signature);
});

const vector = vectors.webhook;
const signature = vector.headers['webhook-signature'];

function check({ secrets = vector.secret, headers = {}, body = vector.body, late = 0 }) {
  const all = { ...vector.headers, ...headers };
  new Webhook(secrets).check(all, body, { now: at(vector.now + late) });
}

test('the published vector verifies', () => {
  check({});
  check({ late: 300 });
  check({ secrets: [vector.other_secret, vector.secret] });
  check({ headers: { 'webhook-signature': `v1a,AAAA v1,AAAA ${signature}` } });
  check({ body: Buffer.from(vector.body) });
  const options = { now: at(vector.now) };
  new Webhook(vector.secret).check(new Headers(vector.headers), vector.body, options);
});

for (const [what, change] of Object.entries({
  body: { body: '{"test": 2432232315}' },
  secret: { secrets: vector.other_secret },
  'later than allowed': { late: 301 },
  'earlier than allowed': { late: -301 },
  id: { headers: { 'webhook-id': 'msg_other' } },
  time: { headers: { 'webhook-timestamp': '1614265331' } },
  'no time': { headers: { 'webhook-timestamp': 'soon' } },
  'no signature': { headers: { 'webhook-signature': '' } },
  'no header': { headers: { 'webhook-signature': undefined } },
  version: { headers: { 'webhook-signature': signature.replace('v1,', 'v2,') } },
  'not ASCII': { headers: { 'webhook-signature': 'v1,é' } },
})) {
  test(`refused: ${what}`, () => assert.throws(() => check(change), InvalidSignature));
}

const now = at(vector.now);
const checkRaw = (headers, body = vector.body) =>
  new Webhook(vector.secret).check(headers, body, { now });

test('the names of headers are in any case and in any form', () => {
  const pairs = Object.entries(vector.headers);
  const upper = pairs.map(([name, value]) => [name.toUpperCase(), value]);
  for (const headers of [
    Object.fromEntries(upper),
    upper,
    new Map(upper),
    new Headers(upper),
    new Map(pairs).entries(),
    Object.assign(Object.create(null), vector.headers),
    [...pairs, ['accept', 'é'], ['x-number', 7]],
    [...pairs, ['Webhook-Id', vector.headers['webhook-id']]],
  ]) {
    checkRaw(headers);
  }
});

test('nothing hostile throws anything else', () => {
  const known = vector.headers;
  const huge = '9'.repeat(100_000);
  const values = [null, undefined, 7, true, [], ['v1,AAAA'], {}, Symbol('v1'), 'é', '\ud800', '', ' '];
  values.push(huge, '\u0663', '-1', '+1', '1e9', 'NaN', '0x10', '\0', 'v1,'.repeat(10_000));
  const names = Object.keys(known);
  const hostile = [
    ...names.flatMap((name) => values.map((value) => ({ ...known, [name]: value }))),
    ...names.map((name) => [...Object.entries(known), [name, 'other']]),
    ...[null, undefined, 7, '', 'abc', [], [null], [['a']], {}, new Map(), () => 0],
  ];
  for (const headers of hostile) assert.throws(() => checkRaw(headers), InvalidSignature);
  for (const body of [null, [], {}, 7]) assert.throws(() => checkRaw(known, body), InvalidSignature);
});

test('a signed body that is no event is refused', () => {
  const key = Buffer.from(vector.secret.slice('whsec_'.length), 'base64');
  for (const body of ['', '{', '[]', '{}', '{"id":1}', 'null', '7']) {
    const tag = createHmac('sha256', key).update(`msg.${vector.now}.${body}`).digest('base64');
    const headers = {
      'webhook-id': 'msg',
      'webhook-timestamp': String(vector.now),
      'webhook-signature': `v1,${tag}`,
    };
    checkRaw(headers, body); // The signature is right.
    const webhook = new Webhook(vector.secret);
    assert.throws(() => webhook.verify(headers, body, { now }), InvalidSignature);
  }
});

test('a bad secret is refused at once', () => {
  for (const secrets of [[], '', 'whsec_!']) assert.throws(() => new Webhook(secrets), TypeError);
});
