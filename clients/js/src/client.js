// The calls, and how they are repeated while their outcome is unknown.

import { Attempts } from './attempts.js';
import { readResults } from './batch.js';
import { readCart, readPlacedCart } from './carts.js';
import { Contract, InvalidInput, StockadeError } from './errors.js';
import { readEvent, readItem, readOrder, readPlaced, withTimes } from './models.js';
import { DEFAULT_RETRY, pauseAfter, sleep } from './retry.js';
import { signPayment } from './signatures.js';
import { exchange } from './transport.js';

/** Rows of a page, when an iterator reads all of them. */
const ROWS = 1000;

/** A service, which may have several instances. */
export class Client {
  #urls;
  #next = 0;
  #attemptTimeout;

  /**
   * `urls` is an address such as `http://127.0.0.1:8080`, or several. Requests go to them in turn, so
   * a repeat goes to another instance than the attempt before it.
   */
  constructor(urls, { retry = DEFAULT_RETRY, attemptTimeout = 10_000 } = {}) {
    this.#urls = [urls].flat().map((url) => String(url).replace(/\/+$/, ''));
    if (this.#urls.length === 0 || !this.#urls.every((url) => /^https?:\/\/[^/]/.test(url))) {
      throw new InvalidInput('urls', 'an address such as http://127.0.0.1:8080');
    }
    this.retry = { ...DEFAULT_RETRY, ...retry };
    this.#attemptTimeout = attemptTimeout;
  }

  /** Makes calls as the buyer who owns `token`, a JWT. */
  buyer(token) {
    return new Buyer(this, token);
  }

  /** Makes calls as the admin who owns `token`. */
  admin(token) {
    return new Admin(this, token);
  }

  /** Reports payments. `secret` is the service's `STOCKADE_PAYMENT_SECRET`. */
  paymentProvider(secret) {
    return new PaymentProvider(this, secret);
  }

  /** Shows an item as the public sees it, at most 250 ms old. */
  async item(item) {
    return readItem(await this.send({ method: 'GET', path: itemPath(item) }));
  }

  /**
   * Sends `request`, and repeats it while the outcome is unknown and `retry` allows it. After an
   * attempt that was lost, only a decision of the service ends the attempts. A caller that judges the
   * parts of the response brings the `attempts`.
   */
  async send(request, attempts = new Attempts({ reads: request.method === 'GET' })) {
    const deadline = Date.now() + this.retry.deadline;
    for (;;) {
      attempts.begin();
      let known;
      try {
        const response = await this.sendOnce(request);
        if (!attempts.hasLost || response.isOfTheService) return response;
        throw new Contract(response.status, 'the body is not the documented JSON');
      } catch (error) {
        if (!(error instanceof StockadeError)) throw error;
        known = attempts.judge(error);
      }
      const pause = pauseAfter(this.retry, attempts.count, known.retryAfter);
      if (!known.isRetryable || Date.now() + pause > deadline) throw known;
      await sleep(pause);
    }
  }

  /** Sends `request` once; only success statuses return. */
  async sendOnce(request) {
    const url = this.#urls[this.#next++ % this.#urls.length] + request.path;
    const timeout = this.#attemptTimeout + (request.wait ?? 0) * 1000;
    return (await exchange(url, parts(request), timeout)).intoSuccess();
  }
}

/** A request stays the same however often it is sent; only a signature contains the time. */
function parts({ method, token, headers = {}, json, paymentSecret }) {
  const body = json === undefined ? undefined : JSON.stringify(json);
  const all = { ...headers };
  if (body !== undefined) all['content-type'] = 'application/json';
  if (token !== undefined) all.authorization = `Bearer ${token}`;
  if (paymentSecret !== undefined) all['stockade-signature'] = signPayment(paymentSecret, body);
  return { method, headers: all, body };
}

/** Makes calls as a buyer. */
export class Buyer {
  #client;
  #token;

  constructor(client, token) {
    this.#client = client;
    this.#token = token;
  }

  /**
   * Places an order, and repeats the request with the same key while the outcome is unknown. A repeat
   * of an order that holds units succeeds too, and returns it as it is now. The order of the key may
   * also have ended since: that is `NoLongerHeld`.
   */
  async place(order) {
    const headers = { 'idempotency-key': order.key };
    const json = { quantity: order.quantity };
    const path = itemPath(order.item, '/orders');
    const attempts = new Attempts();
    const response = await this.#send('POST', path, { headers, json }, attempts);
    return attempts.judged(() => readPlaced(order, response));
  }

  /** Reads one of the buyer's orders from the ledger. */
  async order(order) {
    return readOrder(await this.#send('GET', orderPath(order)), order);
  }

  /** Cancels a held order. Its units can be bought again. */
  async cancel(order) {
    return readOrder(await this.#send('DELETE', orderPath(order)), order);
  }

  /** Has the hold last `seconds` from its creation, or longer if it does already. */
  async extendHold(order, seconds) {
    const path = orderPath(order, '/hold');
    return readOrder(await this.#send('POST', path, { json: { seconds } }), order);
  }

  /**
   * Places a cart, and repeats the request with the same key while the outcome is unknown. All lines
   * are held, or none: `error.problem.item` of the `Refused` names the item then. A cart of the key that
   * has ended since is `NoLongerHeld`.
   */
  async placeCart(cart) {
    const headers = { 'idempotency-key': cart.key };
    const json = { lines: cart.lines };
    const attempts = new Attempts();
    const response = await this.#send('POST', '/v1/carts', { headers, json }, attempts);
    return attempts.judged(() => readPlacedCart(cart, response));
  }

  /** Reads one of the buyer's carts from the ledger. */
  async cart(cart) {
    return readCart(await this.#send('GET', cartPath(cart)), cart);
  }

  /** Cancels a held cart. The units of all lines can be bought again. */
  async cancelCart(cart) {
    return readCart(await this.#send('DELETE', cartPath(cart)), cart);
  }

  /** Has the holds of all lines last `seconds` from the creation of the first order. */
  async extendCart(cart, seconds) {
    const path = cartPath(cart, '/hold');
    return readCart(await this.#send('POST', path, { json: { seconds } }), cart);
  }

  /** All recorded orders of the buyer, page by page. */
  orders() {
    return pages(this.#client, this.#token, '/v1/orders');
  }

  #send(method, path, more, attempts) {
    return this.#client.send({ method, path, token: this.#token, ...more }, attempts);
  }
}

/** Reports payments to the service, signed with the payment secret. */
export class PaymentProvider {
  #client;
  #secret;

  constructor(client, secret) {
    this.#client = client;
    this.#secret = secret;
  }

  /**
   * Reports `{payment, order, amount}`; returns the order as it is now. Check its state:
   * `refund_due` means that the order had expired and no units were left.
   */
  async report(payment) {
    const path = orderPath(payment.order, '/payment');
    return readOrder(await this.#report(path, payment), payment.order);
  }

  /**
   * Reports `{payment, cart, amount}`; returns the cart as it is now. Check its state: `refund_due`
   * means that the cart had expired.
   */
  async reportCart(payment) {
    const path = cartPath(payment.cart, '/payment');
    return readCart(await this.#report(path, payment), payment.cart);
  }

  #report(path, payment) {
    return this.#client.send({ method: 'POST', path, json: payment, paymentSecret: this.#secret });
  }
}

/** Makes calls as an admin. */
export class Admin {
  #client;
  #token;

  constructor(client, token) {
    this.#client = client;
    this.#token = token;
  }

  get retry() {
    return this.#client.retry;
  }

  /** Creates an item: `{id, stock, ...}`, the fields of docs/api.md. A repeat changes nothing. */
  async createItem(item) {
    return readItem(await this.#send('POST', '/v1/items', item));
  }

  /** Shows an item, uncached, with its version. */
  async item(item) {
    return readItem(await this.#send('GET', itemPath(item)));
  }

  /** Opens, pauses or closes an item: `open`, `paused`, `closed`. */
  async setState(item, state) {
    return readItem(await this.#send('PUT', itemPath(item, '/state'), { state }));
  }

  /** Compares the stock counters of an item with the ledger. */
  async audit(item) {
    return (await this.#send('GET', itemPath(item, '/audit'))).json();
  }

  /** Reads any buyer's order from the ledger. */
  async order(order) {
    return readOrder(await this.#send('GET', orderPath(order)), order);
  }

  /** Cancels any buyer's held order. */
  async cancel(order) {
    return readOrder(await this.#send('DELETE', orderPath(order)), order);
  }

  /** Has the hold last `seconds` from its creation, or longer if it does already. */
  async extendHold(order, seconds) {
    return readOrder(await this.#send('POST', orderPath(order, '/hold'), { seconds }), order);
  }

  /** Notes that the money of an order was returned. */
  async refund(order) {
    return readOrder(await this.#send('POST', orderPath(order, '/refund')), order);
  }

  /** All recorded orders of an item, those in one state or all, page by page. */
  itemOrders(item, state) {
    return pages(this.#client, this.#token, itemPath(item, '/orders'), { state });
  }

  /** All money that must be returned, page by page. */
  refundsDue() {
    return pages(this.#client, this.#token, '/v1/refunds-due');
  }

  /** Notes that the money of a row of `refundsDue` was returned. */
  async refundDone(row) {
    const path = `/v1/refunds-due/${segment('row', row)}/done`;
    return withTimes((await this.#send('POST', path)).json());
  }

  /**
   * Places orders `{buyer, quantity, key}` of several buyers, at most 512; returns `{placed}` or
   * `{error}` for each, in this order. The whole request is repeated while its outcome is unknown,
   * but not single orders whose outcome is: `OrderBatcher` does that.
   */
  async placeBatch(item, orders) {
    const attempts = new Attempts();
    const response = await this.#client.send(this.#batch(item, orders), attempts);
    const results = attempts.judged(() => readResults(item, orders, response));
    return results.map((result) =>
      result.error ? { error: attempts.judge(result.error) } : result,
    );
  }

  /** `placeBatch` without a repeat of the request. */
  async placeBatchOnce(item, orders) {
    return readResults(item, orders, await this.#client.sendOnce(this.#batch(item, orders)));
  }

  /**
   * The events after a cursor, or from the oldest; waits so many seconds for the first. Store `next`
   * with what you did about the events, in one transaction.
   */
  async eventPage({ after, wait = 0, limit = 100 } = {}) {
    const path = `/v1/events${query({ after, wait, limit })}`;
    const response = await this.#client.send({ method: 'GET', path, token: this.#token, wait });
    const { data, next } = response.json();
    if (!Array.isArray(data)) throw new Contract(response.status, 'data is missing');
    return { data: data.map(readEvent), next };
  }

  /**
   * The events after a cursor, and those to come, without end. `event.id` is the cursor to continue
   * from. An error ends the iterator: begin again there.
   */
  async *events({ after, wait = 30 } = {}) {
    for (let cursor = after; ; ) {
      const page = await this.eventPage({ after: cursor, wait });
      yield* page.data;
      cursor = page.next ?? cursor;
    }
  }

  /**
   * Creates a webhook; the answer has its `id` and, only here, its `secret`. A repeat would create
   * another one, so the request is sent once.
   */
  async createWebhook(url, kinds = []) {
    const request = { method: 'POST', path: '/v1/webhooks', json: { url, kinds } };
    return (await this.#client.sendOnce({ ...request, token: this.#token })).json();
  }

  /** All webhooks, without their secrets. */
  async webhooks() {
    return (await this.#send('GET', '/v1/webhooks')).json().data;
  }

  /** Removes a webhook. */
  async removeWebhook(webhook) {
    await this.#send('DELETE', `/v1/webhooks/${segment('webhook', webhook)}`);
  }

  #send(method, path, json) {
    return this.#client.send({ method, path, token: this.#token, json });
  }

  #batch(item, orders) {
    const lines = orders.map(({ buyer, quantity, key }) => ({ buyer, quantity, key }));
    const path = itemPath(item, '/orders:batch');
    return { method: 'POST', path, token: this.#token, json: { orders: lines } };
  }
}

async function* pages(client, token, path, parameters) {
  for (let after; after !== null; ) {
    const all = query({ ...parameters, after, limit: ROWS });
    const page = (await client.send({ method: 'GET', path: path + all, token })).json();
    yield* page.data.map(withTimes);
    after = page.next;
  }
}

function query(parameters) {
  const known = Object.entries(parameters).filter(([, value]) => value !== undefined);
  return `?${new URLSearchParams(known.map(([name, value]) => [name, String(value)]))}`;
}

function itemPath(item, rest = '') {
  return `/v1/items/${segment('item', item)}${rest}`;
}

function cartPath(cart, rest = '') {
  return `/v1/carts/${segment('cart', cart)}${rest}`;
}

function orderPath(order, rest = '') {
  return `/v1/orders/${segment('order', order)}${rest}`;
}

/** A segment of a path. `fetch` resolves `.` and `..`, and an empty one is another path. */
function segment(field, name) {
  if (['', '.', '..'].includes(String(name ?? ''))) {
    throw new InvalidInput(field, 'a name that is not empty, `.` or `..`');
  }
  return encodeURIComponent(name);
}
