// Orders of several buyers in one request.
//
// HTTP is the narrowest part of a sale: a request costs the service more than the order in it. An
// `OrderBatcher` therefore collects the orders that arrive while its requests are under way, and sends
// them together when one returns. There is no timer: a lone order leaves at once, and under load the
// batches grow by themselves.

import { Attempts } from './attempts.js';
import { Contract, StockadeError } from './errors.js';
import { readPlaced } from './models.js';
import { checkedBuyerOrder } from './requests.js';
import { pauseAfter, sleep } from './retry.js';
import { PROBLEM, Response } from './transport.js';

/** Orders of one request, at most. */
const ORDERS_MAX = 512;
/** Requests that are under way at the same time. */
const FLIGHTS = 2;

/**
 * Places the orders of many buyers for one item, as a shop's backend does. Create one for the item;
 * all requests of the shop share it. An order whose outcome is unknown is sent again with the same
 * key, for as long as the client's `retry` allows.
 */
export class OrderBatcher {
  #admin;
  #item;
  #flightsMax;
  #flights = 0;
  #waiting = [];

  constructor(admin, item, { flights = FLIGHTS } = {}) {
    this.#admin = admin;
    this.#item = item;
    this.#flightsMax = flights;
  }

  /**
   * Places an order. Do not forget the key, whatever becomes of the promise. `options` are the other
   * fields of a `BuyerOrder`, such as `amount`, the shop's total, which may be less than the price.
   */
  async order(buyer, quantity, key, options = {}) {
    const order = checkedBuyerOrder({ ...options, buyer, quantity, key });
    return new Promise((resolve, reject) => {
      const deadline = performance.now() + this.#admin.retry.deadline;
      this.#enqueue([{ order, attempts: new Attempts(), deadline, resolve, reject }]);
    });
  }

  /** Leaves the orders to a request that is under way, or begins one. */
  #enqueue(orders) {
    this.#waiting.push(...orders);
    if (this.#flights === this.#flightsMax) return;
    this.#flights += 1;
    // Orders of the same moment leave together.
    queueMicrotask(() => this.#fly());
  }

  /** Sends what waits, request by request, until nothing waits. */
  async #fly() {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, ORDERS_MAX);
      for (const { attempts } of batch) attempts.begin();
      const results = await this.#send(batch.map(({ order }) => order));
      const again = batch.filter((waiting, place) => !this.#settle(waiting, results[place]));
      if (again.length > 0) {
        const pause = Math.max(...again.map((waiting) => waiting.pause));
        sleep(pause).then(() => this.#enqueue(again));
      }
    }
    this.#flights -= 1;
  }

  async #send(orders) {
    try {
      return await this.#admin.placeBatchOnce(this.#item, orders);
    } catch (error) {
      return orders.map(() => ({ error }));
    }
  }

  /** Answers the order, or leaves it with the pause before it is sent again. */
  #settle(waiting, { placed, error }) {
    if (placed) {
      waiting.resolve(placed);
      return true;
    }
    const known = error instanceof StockadeError ? waiting.attempts.judge(error) : error;
    waiting.pause = pauseAfter(this.#admin.retry, waiting.attempts.count, known.retryAfter);
    if (known.isRetryable && performance.now() + waiting.pause <= waiting.deadline) return false;
    waiting.reject(known);
    return true;
  }
}

/** Reads the response to a batch: `{placed}` or `{error}` for each order, in the same order. */
export function readResults(item, orders, response) {
  const results = response.json()?.results;
  if (!Array.isArray(results) || results.length !== orders.length) {
    throw new Contract(response.status, `expected ${orders.length} results`);
  }
  // The lines have no type of their own: they are the service's if the whole response is.
  const type = response.type === 'application/json' ? PROBLEM : response.type;
  return results.map((result, place) => readLine(item, orders[place], result, type));
}

/** Reads a result as the response to a single order. */
function readLine(item, { quantity, amount }, result, type) {
  try {
    if (typeof result?.status !== 'number') throw new Contract(200, 'a result has no status');
    const { status, replayed } = result;
    const retryAfter = Number.isInteger(result.retry_after) ? result.retry_after : undefined;
    const body = JSON.stringify(result);
    const response = new Response({ status, replayed, retryAfter, type, body });
    return { placed: readPlaced({ item, quantity, amount }, response.intoSuccess()) };
  } catch (error) {
    if (error instanceof StockadeError) return { error };
    throw error;
  }
}
