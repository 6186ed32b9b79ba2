// What answers always have, and which of their fields are times.
//
// `make clients` writes this file from `docs/openapi.json`.

/** What every Order has. */
export const ORDER = {
  id: 'string',
  item: 'string',
  quantity: 'number',
  state: 'string',
  price: 'number',
  amount: 'number',
  currency: 'string',
  expires_at: 'time',
  version: 'number',
};

/** What every Cart has. */
export const CART = {
  id: 'string',
  state: 'string',
  lines: 'array',
  amount: 'number',
  currency: 'string',
  expires_at: 'time',
};

/** What every CartLine has. */
export const CART_LINE = {
  item: 'string',
  order: 'string',
  quantity: 'number',
};

/** What every Items has. */
export const ITEMS = {
  data: 'array',
  unknown: 'array',
  unavailable: 'array',
};

/** What every RefundDue has. */
export const REFUND_DUE = {
  id: 'string',
  reason: 'string',
  order: 'string',
  item: 'string',
  state: 'string',
  currency: 'string',
  idempotency_key: 'string',
};

/** Times of any answer. */
export const TIMES = ['at', 'closes_at', 'created_at', 'expires_at', 'opens_at', 'reported_at', 'time'];
