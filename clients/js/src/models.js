// What is sent and what comes back. Names of fields are those of the API, and times are `Date`s.

import { randomUUID } from 'node:crypto';

import { optionsOf } from './checks.js';
import { Contract, NoLongerHeld } from './errors.js';
import { ITEMS, ORDER, TIMES } from './fields.js';
import { checkedNewOrder } from './requests.js';

/**
 * An order to be placed. The same value is always the same order: create it once, and store `key`
 * before you send the request if the order must survive a crash of your process. Instead of a key it
 * takes options, such as `{key, amount}`: the shop's total with shipping and tax, which payments are
 * checked against.
 */
export function newOrder(item, quantity = 1, keyOrOptions = undefined) {
  const { key = randomKey(), ...options } = optionsOf(keyOrOptions);
  return Object.freeze(checkedNewOrder({ ...options, item, quantity, key }));
}

/** A key that no other order or cart has. */
export function randomKey() {
  return randomUUID().replaceAll('-', '');
}

/** Checks that an object has these fields; what is missing violates the contract. */
export function checkFields(body, fields, status) {
  for (const [field, type] of Object.entries(fields)) {
    const value = body?.[field];
    if (!isA(type, value)) throw new Contract(status, `${field}: ${JSON.stringify(value)} is no ${type}`);
  }
}

function isA(type, value) {
  if (type === 'time') return !Number.isNaN(Date.parse(value));
  return type === 'array' ? Array.isArray(value) : typeof value === type;
}

/** Reads an order; what is missing violates the contract. */
export function readOrder(response, id) {
  const body = response.json();
  const { status } = response;
  checkFields(body, ORDER, status);
  if (id !== undefined && body.id !== id) {
    throw new Contract(status, `expected the order ${id}, found ${body.id}`);
  }
  return withTimes(body);
}

/** Whether the units of an order or a cart belong to the buyer: it is `held` or `confirmed`. */
export function hasUnits({ state }) {
  return state === 'held' || state === 'confirmed';
}

/** Reads the response to `order`, and verifies that it is about this order and holds units. */
export function readPlaced(order, response) {
  const found = readOrder(response);
  if (found.item !== order.item || found.quantity !== order.quantity) {
    const expected = `expected an order of ${order.quantity} x ${order.item}`;
    const violation = `${expected}, found one of ${found.quantity} x ${found.item}`;
    throw new Contract(response.status, violation);
  }
  if (!hasUnits(found)) throw new NoLongerHeld({ order: found });
  checkCosts(order, found.amount, response.status);
  return { order: found, replayed: response.replayed, recorded: response.status === 201 };
}

/** Verifies that what was placed costs what was asked for, if the shop has stated it. */
export function checkCosts({ amount }, found, status) {
  if (amount !== undefined && found !== amount) {
    throw new Contract(status, `expected the amount ${amount}, found ${found}`);
  }
}

/** The item with this id, the version of its `ETag`, and whether a change of it is `pending` (202). */
export function readItem(response, id) {
  const item = response.object();
  if (item.id !== id) {
    throw new Contract(response.status, `expected the item ${id}, found ${item.id}`);
  }
  return { ...withTimes(item), version: response.version, pending: response.status === 202 };
}

/** Several items; what is missing violates the contract. */
export function readItems(response) {
  const items = response.object();
  checkFields(items, ITEMS, response.status);
  const data = items.data.map((item) => ({ ...withTimes(item), pending: false }));
  return { data, unknown: items.unknown, unavailable: items.unavailable };
}

/** An event, as `GET /v1/events` and webhooks have it. */
export function readEvent(body) {
  if (typeof body?.id !== 'string' || typeof body?.type !== 'string') {
    throw new Contract(200, 'an event has no id or no type');
  }
  const kind = body.type.replace(/^stockade\./, '');
  const { orders = [], cart } = body.data ?? {};
  return { ...withTimes(body), kind, data: body.data ?? {}, orders, cart };
}

/** The same object with `Date`s for its times. */
export function withTimes(body) {
  const object = { ...body };
  for (const field of TIMES) {
    if (typeof object[field] === 'string') object[field] = new Date(object[field]);
  }
  return object;
}
