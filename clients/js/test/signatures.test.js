// Signatures and tokens, against values that others have computed.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { InvalidSignature, Webhook, mintBuyer, signPayment } from '../src/index.js';

const vectors = JSON.parse(readFileSync(new URL('../../vectors.json', import.meta.url)));
const at = (seconds) => new Date(seconds * 1000);

test('a minted token is what others compute', () => {
  const { secret, buyer, expires, token } = vectors.token;
  assert.equal(mintBuyer(secret, buyer, { lifetime: 60, now: at(expires - 60) }), token);
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

test('a bad secret is refused at once', () => {
  for (const secrets of [[], '', 'whsec_!']) assert.throws(() => new Webhook(secrets), TypeError);
});
