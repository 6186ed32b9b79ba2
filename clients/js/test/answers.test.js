// What an answer says about the attempts before it, against the table that all clients share.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { DECISIONS, NOTHING_RAN, RETURNS_MONEY, isDecision, mayHaveRun } from '../src/answers.js';
import { OutcomeUnknown, Refused } from '../src/index.js';

const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url)));
const { codes } = read('../../answers.json');
const returnsMoney = Object.keys(codes).filter((code) => codes[code].returns_money);
const { schemas } = read('../../../docs/openapi.json').components;

const codesThatMean = (wanted) =>
  Object.entries(codes).filter(([, { lost }]) => lost === wanted).map(([code]) => code).sort();

test('every code of the description is classified', () => {
  assert.deepEqual(Object.keys(codes).sort(), [...schemas.ProblemCode.enum].sort());
});

test('the client has the table', () => {
  assert.deepEqual([...DECISIONS].sort(), codesThatMean('decision'));
  assert.deepEqual([...NOTHING_RAN].sort(), codesThatMean('nothing'));
  const others = Object.keys(codes).filter((code) => !DECISIONS.has(code) && !NOTHING_RAN.has(code));
  assert.deepEqual(others.sort(), codesThatMean('unknown'));
});

test('money is returned for the codes of the table', () => {
  assert.deepEqual([...RETURNS_MONEY].sort(), [...returnsMoney].sort());
  for (const code of Object.keys(codes)) {
    const error = new Refused({ status: 409, code });
    assert.equal(error.returnsMoney, returnsMoney.includes(code), code);
  }
  assert.ok(!new OutcomeUnknown({ status: 503, code: 'already_paid' }).returnsMoney);
});

test("only the service's own words settle a key", () => {
  assert.ok(isDecision({ status: 409, code: 'sold_out' }));
  for (const [status, code] of [[409, ''], [409, 'later'], [404, 'SOLD_OUT'], [503, 'sold_out']]) {
    assert.ok(!isDecision({ status, code }), `${status} ${code}`);
  }
  assert.ok(new Refused({ status: 409, code: 'sold_out' }).settlesKey);
  assert.ok(!new Refused({ status: 409, code: 'sold_out', final: false }).settlesKey);
  assert.ok(!new OutcomeUnknown({ status: 503, code: 'outcome_unknown' }).settlesKey);
});

test('an answer without a known code may hide an effect', () => {
  for (const [status, code] of [[500, 'internal'], [502, ''], [503, 'outcome_unknown'], [504, 'new']]) {
    assert.ok(mayHaveRun({ status, code }), `${status} ${code}`);
  }
  assert.ok(!mayHaveRun({ status: 503, code: 'unavailable' }));
  assert.ok(!mayHaveRun({ status: 408, code: 'request_timeout' }));
});
