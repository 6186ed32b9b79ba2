// What a value must be to become part of a request. Anything else is `InvalidInput`.

import { InvalidInput } from './errors.js';

/** A text. A number would be another name in each language. */
export function checkText(field, value) {
  if (typeof value !== 'string') throw new InvalidInput(field, `a string, not ${typeof value}`);
  return value;
}

/** A whole number that `Number` has exactly. */
export function checkWhole(field, value) {
  if (!Number.isSafeInteger(value)) throw new InvalidInput(field, 'a whole number');
  return value;
}

/** What may be absent. */
export function ifStated(check, field, value) {
  return value === undefined ? value : check(field, value);
}

/** A key, or the options with one. */
export function optionsOf(given) {
  return typeof given === 'object' && given !== null ? given : { key: given };
}

/** A key is what makes two requests the same order, or the same change of stock. */
export function checkKey(key) {
  if (!/^[!-~]{1,255}$/.test(checkText('key', key))) {
    throw new InvalidInput('key', '1 to 255 visible ASCII characters');
  }
  return key;
}

/** What a header can carry. */
export function checkToken(token) {
  if (!/^[!-~]+$/.test(checkText('token', token))) {
    throw new InvalidInput('token', 'visible ASCII characters');
  }
  return token;
}

/** A name of a buyer, as the service takes it. */
export function checkBuyer(buyer) {
  const length = Buffer.byteLength(checkText('buyer', buyer));
  // `u` has half of a surrogate pair as `Cs`.
  const isAddressable = !/[\p{Cc}\p{Cs}]/u.test(buyer) && !['.', '..'].includes(buyer);
  if (length < 1 || length > 128 || !isAddressable) {
    const wanted = '1 to 128 bytes of UTF-8 without control characters, and neither `.` nor `..`';
    throw new InvalidInput('buyer', wanted);
  }
  return buyer;
}
