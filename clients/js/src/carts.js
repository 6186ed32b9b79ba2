// Carts: orders of several items that a buyer gets all or none of.

import { checkKey, checkText, checkWhole, ifStated, optionsOf } from './checks.js';
import { Contract, InvalidInput, NoLongerHeld } from './errors.js';
import { CART, CART_LINE } from './fields.js';
import { checkCosts, checkFields, hasUnits, randomKey, withTimes } from './models.js';

/** The amount of a cart whose payments the shop checks itself. */
const UNCHECKED = 'unchecked';

/**
 * A cart to be placed, of lines `{item, quantity}`, at most 20. The same value is always the same cart:
 * create it once, and store `key` before you send the request if the cart must survive a crash of your
 * process. Instead of a key it takes `{key, amount}`: the shop's total with shipping, tax and vouchers, which
 * payments are checked against. Only an admin states less than the price, or `unchecked`: any payment pays.
 */
export function newCart(lines, keyOrOptions = undefined) {
  const { key = randomKey(), amount } = optionsOf(keyOrOptions);
  if (!Array.isArray(lines)) throw new InvalidInput('lines', 'an array of {item, quantity}');
  const copies = lines.map(copyOfLine);
  if (amount !== UNCHECKED) ifStated(checkWhole, 'amount', amount);
  return Object.freeze({ lines: Object.freeze(copies), key: checkKey(key), amount });
}

function copyOfLine(line) {
  const { item, quantity = 1 } = line ?? {};
  const copy = { item: checkText('item', item), quantity: checkWhole('quantity', quantity) };
  return Object.freeze(copy);
}

/** Reads a cart; what is missing violates the contract. */
export function readCart(response, id) {
  const body = response.json();
  const { status } = response;
  checkFields(body, CART, status);
  for (const line of body.lines) checkFields(line, CART_LINE, status);
  if (id !== undefined && body.id !== id) {
    throw new Contract(status, `expected the cart ${id}, found ${body.id}`);
  }
  return withTimes(body);
}

/** Reads the response to `cart`, and verifies that it is about this cart and holds units. */
export function readPlacedCart(cart, response) {
  const found = readCart(response);
  const [expected, got] = [units(cart.lines), units(found.lines)];
  const isSame = [...expected].every(([item, quantity]) => got.get(item) === quantity);
  if (!isSame || found.lines.length !== expected.size) {
    const text = (lines) => JSON.stringify(Object.fromEntries(lines));
    const violation = `expected a cart of ${text(expected)}, found one of ${text(got)}`;
    throw new Contract(response.status, violation);
  }
  if (!hasUnits(found)) throw new NoLongerHeld({ cart: found });
  checkCosts(cart, found.amount_check ?? found.amount, response.status);
  return { cart: found, replayed: response.replayed };
}

/** The units of each item: the service sums lines of the same item. */
function units(lines) {
  const sums = new Map();
  for (const { item, quantity } of lines) sums.set(item, (sums.get(item) ?? 0) + quantity);
  return sums;
}
