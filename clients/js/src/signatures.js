// Tokens and signatures: what proves who calls.

import { createHmac, timingSafeEqual } from 'node:crypto';

import { checkBuyer, checkText, checkWhole } from './checks.js';
import { Contract } from './errors.js';
import { readEvent } from './models.js';

/** `{"alg":"HS256","typ":"JWT"}` in base64url. */
const HEADER = 'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9';

/** A message that does not come from Stockade, or that is too old. Answer 400 and drop it. */
export class InvalidSignature extends Error {
  name = 'InvalidSignature';
}

const seconds = (now) => Math.floor((now?.getTime() ?? Date.now()) / 1000);
const hmac = (key, ...parts) =>
  parts.reduce((mac, part) => mac.update(part), createHmac('sha256', key));

/**
 * Issues a buyer's JWT (HS256), valid for `lifetime` seconds from now.
 *
 * For shops that share `STOCKADE_JWT_SECRET` with the service. A shop with a public key issues tokens
 * with its own library. `issuer` and `audience` are what the service demands, if it does
 * (`STOCKADE_JWT_ISSUER`, `STOCKADE_JWT_AUDIENCE`).
 */
export function mintBuyer(secret, buyer, { issuer, audience, lifetime = 3600, now } = {}) {
  const exp = seconds(now) + checkWhole('lifetime', lifetime);
  const claims = { sub: checkBuyer(buyer), exp };
  if (issuer !== undefined) claims.iss = checkText('iss', issuer);
  if (audience !== undefined) claims.aud = checkText('aud', audience);
  const signed = `${HEADER}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}`;
  checkText('secret', secret);
  return `${signed}.${hmac(secret, signed).digest('base64url')}`;
}

/**
 * The value of `Stockade-Signature` for a body that is sent now: `t=SECONDS,v1=HEX`. The time is
 * signed as well, so a copied message is useless after the service's window.
 */
export function signPayment(secret, body, { now } = {}) {
  const time = seconds(now);
  return `t=${time},v1=${hmac(secret, `${time}.`, body).digest('hex')}`;
}

/**
 * Verifies webhooks by Standard Webhooks (https://www.standardwebhooks.com).
 *
 * Several secrets are those of several webhooks, or the old and the new one while it changes.
 */
export class Webhook {
  #keys;
  #tolerance;

  /** `secrets`: one `whsec_...` or several; `tolerance` is in seconds. */
  constructor(secrets, { tolerance = 300 } = {}) {
    this.#keys = [secrets].flat().map(keyOf);
    if (this.#keys.length === 0) throw new TypeError('secrets: expected one at least');
    this.#tolerance = tolerance;
  }

  /**
   * The event in `body`, which must be the raw body of the request (a string or bytes). `headers` are
   * a `Headers`, an object, a `Map` or pairs, with names in any case. Anything that Stockade would not
   * send is InvalidSignature. Remember `event.id` with what you do about the event: it may come again.
   */
  verify(headers, body, options) {
    this.check(headers, body, options);
    try {
      return readEvent(JSON.parse(Buffer.from(body).toString()));
    } catch (error) {
      if (!(error instanceof SyntaxError || error instanceof Contract)) throw error;
      throw new InvalidSignature('the body is no event');
    }
  }

  /** Throws InvalidSignature unless a secret has signed the headers and the raw body now. */
  check(headers, body, { now } = {}) {
    if (typeof body !== 'string' && !(body instanceof Uint8Array)) {
      throw new InvalidSignature('the body is not the raw body of the request');
    }
    const known = webhookHeaders(headers);
    const [id, time, signatures] = ['id', 'timestamp', 'signature'].map((name) =>
      required(known, `webhook-${name}`),
    );
    if (!/^\d{1,15}$/.test(time)) throw new InvalidSignature('webhook-timestamp is no number');
    if (Math.abs(seconds(now) - Number(time)) > this.#tolerance) {
      throw new InvalidSignature('webhook-timestamp is too far from now');
    }
    const wanted = this.#keys.map(
      (key) => `v1,${hmac(key, `${id}.${time}.`, Buffer.from(body)).digest('base64')}`,
    );
    // Compares all, so that the time tells nothing.
    const matches = wanted.flatMap((one) =>
      signatures.split(' ').map((other) => isSame(one, other)),
    );
    if (!matches.includes(true)) throw new InvalidSignature('no signature matches');
  }
}

function keyOf(secret) {
  const text = String(secret).replace(/^whsec_/, '');
  const key = Buffer.from(text, 'base64');
  // `Buffer` skips what is no base64.
  if (key.length === 0 || key.toString('base64') !== text) {
    throw new TypeError('secrets: expected whsec_ and base64');
  }
  return key;
}

/**
 * The headers of a webhook by their lower-case names. `null`: no text, or there are several. What
 * Stockade sends is ASCII.
 */
function webhookHeaders(headers) {
  const found = new Map();
  for (const [name, value] of pairsOf(headers)) {
    const lower = typeof name === 'string' ? name.toLowerCase() : '';
    if (!lower.startsWith('webhook-')) continue;
    const text = typeof value === 'string' && /^[ -~]*$/.test(value) ? value : null;
    found.set(lower, !found.has(lower) || found.get(lower) === text ? text : null);
  }
  return found;
}

/** The pairs of a `Headers`, a `Map` or an array, or those of an object such as Node's. */
function pairsOf(headers) {
  if (headers === null || typeof headers !== 'object') {
    throw new InvalidSignature('the headers are neither an object nor pairs');
  }
  if (typeof headers[Symbol.iterator] !== 'function') return Object.entries(headers);
  return [...headers].map((pair) => (Array.isArray(pair) ? pair : []));
}

function required(headers, name) {
  if (!headers.has(name)) throw new InvalidSignature(`no header ${name}`);
  const value = headers.get(name);
  if (value === null) {
    throw new InvalidSignature(`the header ${name} is no ASCII text, or there are several`);
  }
  return value;
}

function isSame(one, other) {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
