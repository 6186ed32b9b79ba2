// What callers make, checked, and what of it a body has.
//
// `make clients` writes this file from `docs/openapi.json`.

import { checkKey, checkText, checkWhole, ifStated } from './checks.js';

export function checkedNewOrder(made) {
  return {
    item: checkText('item', made.item),
    quantity: checkWhole('quantity', made.quantity),
    key: checkKey(made.key),
    amount: ifStated(checkWhole, 'amount', made.amount),
  };
}

export function bodyOfNewOrder(made) {
  return {
    quantity: made.quantity,
    amount: made.amount,
  };
}

export function checkedBuyerOrder(made) {
  return {
    buyer: checkText('buyer', made.buyer),
    quantity: checkWhole('quantity', made.quantity),
    key: checkKey(made.key),
    amount: ifStated(checkWhole, 'amount', made.amount),
  };
}
