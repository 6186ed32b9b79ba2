// The calls, and how they are repeated while their outcome is unknown.

import { Attempts } from './attempts.js';
import { readResults } from './batch.js';
import { readCart, readPlacedCart } from './carts.js';
import { checkKey, checkText, checkToken, checkWhole } from './checks.js';
import { InvalidInput, StockadeError } from './errors.js';
import { REFUND_DUE } from './fields.js';
import { checkFields, readEvent, readItem, readItems, readOrder, readPlaced, withTimes } from './models.js';
import { bodyOfNewOrder, checkedBuyerOrder } from './requests.js';
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
    return new Buyer(this, checkToken(token));
  }

  /** Makes calls as the admin who owns `token`. */
  admin(token) {
    return new Admin(this, checkToken(token));
  }

  /** Reports payments. `secret` is the service's `STOCKADE_PAYMENT_SECRET`. */
  paymentProvider(secret) {
    return new PaymentProvider(this, checkText('secret', secret));
  }

  /** Shows an item as the public sees it, at most 250 ms old. */
  async item(item) {
    const read = (response) => readItem(response, item);
    return this.send({ method: 'GET', path: itemPath(item) }, read);
  }

  /** Shows up to 100 items as the public sees them, in one request. */
  async items(items) {
    if (!Array.isArray(items)) throw new InvalidInput('items', 'an array of names');
    const ids = items.map((item) => segment('items', item)).join(',');
    return this.send({ method: 'GET', path: `/v1/items:batch?ids=${ids}` }, readItems);
  }

  /**
   * Sends `request`, and repeats it while the outcome is unknown and `retry` allows it. Returns what
   * `read` makes of the response. After an attempt that was lost, only that or a decision of the
   * service ends the attempts: a proxy may send a success too. A caller that judges the parts of the
   * response brings the `attempts`.
   */
  async send(request, read, attempts = new Attempts({ reads: request.method === 'GET' })) {
    const deadline = performance.now() + this.retry.deadline;
    for (;;) {
      attempts.begin();
      let known;
      try {
        return read(await this.sendOnce(request));
      } catch (error) {
        if (!(error instanceof StockadeError)) throw error;
        known = attempts.judge(error);
      }
      const pause = pauseAfter(this.retry, attempts.count, known.retryAfter);
      if (!known.isRetryable || performance.now() + pause > deadline) throw known;
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

function asJson(value) {
  try {
    return JSON.stringify(value);
  } catch (error) {
    throw new InvalidInput('body', `values that JSON has: ${error.message}`);
  }
}

/** A request stays the same however often it is sent; only a signature contains the time. */
function parts({ method, token, headers = {}, json, paymentSecret }) {
  const body = json === undefined ? undefined : asJson(json);
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
    const json = bodyOfNewOrder(order);
    const path = itemPath(order.item, '/orders');
    const read = (response) => readPlaced(order, response);
    return this.#send(read, 'POST', path, { headers, json });
  }

  /** Reads one of the buyer's orders from the ledger. */
  async order(order) {
    return this.#send(asOrder(order), 'GET', orderPath(order));
  }

  /** Cancels a held order. Its units can be bought again. */
  async cancel(order) {
    return this.#send(asOrder(order), 'DELETE', orderPath(order));
  }

  /**
   * Has the hold last so many seconds from its creation, or longer if it does already. `hold` is their
   * number or `{seconds, session}`: `session` names the checkout session in which the buyer pays.
   */
  async extendHold(order, hold) {
    const path = orderPath(order, '/hold');
    return this.#send(asOrder(order), 'POST', path, { json: holdChange(hold) });
  }

  /**
   * Places a cart, and repeats the request with the same key while the outcome is unknown. All lines
   * are held, or none: `error.problem.item` of the `Refused` names the item then. A cart of the key that
   * has ended since is `NoLongerHeld`.
   */
  async placeCart(cart) {
    const headers = { 'idempotency-key': cart.key };
    const json = { lines: cart.lines, amount: cart.amount };
    const read = (response) => readPlacedCart(cart, response);
    return this.#send(read, 'POST', '/v1/carts', { headers, json });
  }

  /** Reads one of the buyer's carts from the ledger. */
  async cart(cart) {
    return this.#send(asCart(cart), 'GET', cartPath(cart));
  }

  /** Cancels a held cart. The units of all lines can be bought again. */
  async cancelCart(cart) {
    return this.#send(asCart(cart), 'DELETE', cartPath(cart));
  }

  /**
   * Has the holds of all lines last so many seconds from the creation of the first order. `hold` is
   * their number or `{seconds, session}`, as with `extendHold`.
   */
  async extendCart(cart, hold) {
    const path = cartPath(cart, '/hold');
    return this.#send(asCart(cart), 'POST', path, { json: holdChange(hold) });
  }

  /** All recorded orders of the buyer, page by page. */
  orders() {
    return pages(this.#client, this.#token, '/v1/orders');
  }

  /** All carts of the buyer, page by page. */
  carts() {
    return pages(this.#client, this.#token, '/v1/carts');
  }

  #send(read, method, path, more) {
    return this.#client.send({ method, path, token: this.#token, ...more }, read);
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
   * Reports `{payment, order, amount, currency}`; returns the order as it is now. Check its state:
   * `refund_due` means that the order had expired and no units were left.
   */
  async report(payment) {
    const path = orderPath(payment.order, '/payment');
    return this.#report(asOrder(payment.order), path, payment);
  }

  /**
   * Reports `{payment, cart, amount, currency}`; returns the cart as it is now. Check its state: `refund_due`
   * means that the cart had expired and that no units were left for one of its lines.
   */
  async reportCart(payment) {
    const path = cartPath(payment.cart, '/payment');
    return this.#report(asCart(payment.cart), path, payment);
  }

  #report(read, path, payment) {
    const request = { method: 'POST', path, json: payment, paymentSecret: this.#secret };
    return this.#client.send(request, read);
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
    return this.#send(asItem(item.id), 'POST', '/v1/items', item);
  }

  /** Shows an item, uncached, with its version. */
  async item(item) {
    return this.#send(asItem(item), 'GET', itemPath(item));
  }

  /** All items, page by page. */
  items() {
    return pages(this.#client, this.#token, '/v1/items');
  }

  /**
   * Opens, pauses or closes an item: `open`, `paused`, `closed`. With a `version`, as with the other
   * changes, the item must have it: a change in between is `version_mismatch`.
   */
  async setState(item, state, { version } = {}) {
    return this.#change(item, 'PUT', '/state', { json: { state }, version });
  }

  /**
   * Changes `limit_per_buyer`, `opens_at`, `closes_at` or `waves`; `null` removes one. A new `price` is
   * that of orders to come.
   */
  async patchItem(item, changes, { version } = {}) {
    return this.#change(item, 'PATCH', '', { json: changes, version });
  }

  /** Adds units. Calls with the same key are the same change. */
  async addStock(item, units, key, { version } = {}) {
    const json = { add: checkWhole('units', units) };
    return this.#change(item, 'POST', '/stock', { json, key: checkKey(key), version });
  }

  /**
   * Withdraws so many units, or as many as are unsold. While they move, the item is `pending`. Calls
   * with the same key are the same change.
   */
  async withdrawStock(item, units, key, { version } = {}) {
    const json = { withdraw: checkWhole('units', units) };
    return this.#change(item, 'POST', '/stock', { json, key: checkKey(key), version });
  }

  /**
   * Sets the units that exist, held and paid ones included, if the item has this version. Units of
   * which buyers were faster stay: `stock` is the result.
   */
  async setStock(item, stock, version) {
    const json = { stock: checkWhole('stock', stock) };
    checkWhole('version', version);
    return this.#change(item, 'PUT', '/stock', { json, version });
  }

  /** Archives a closed item for good. It is `pending` until a reconciler has done it. */
  async archiveItem(item, { version } = {}) {
    return this.#change(item, 'POST', '/archive', { version });
  }

  /**
   * Exports and deletes what the sale of an archived item has left. It is `pending` until a reconciler
   * has done it: the audit has `dropped_at` then.
   */
  async dropItem(item) {
    return this.#change(item, 'DELETE', '');
  }

  /** Replaces a buyer's name in the orders at archived items, for good: `{erased, kept}`. */
  async eraseBuyer(buyer) {
    const path = `/v1/buyers/${segment('buyer', buyer)}/erase`;
    return this.#send((response) => response.object(), 'POST', path);
  }

  /**
   * Compares the stock counters of an item with the ledger. `orders_checked` says when the counters of the
   * ledger were last compared with the orders themselves. With `full` this call compares them: it reads
   * every order of the item, and may take long.
   */
  async audit(item, { full = false } = {}) {
    const path = itemPath(item, full ? '/audit?full=true' : '/audit');
    return this.#send((response) => response.object(), 'GET', path);
  }

  /** Reads any buyer's order from the ledger. */
  async order(order) {
    return this.#send(asOrder(order), 'GET', orderPath(order));
  }

  /** Cancels any buyer's held order. */
  async cancel(order) {
    return this.#send(asOrder(order), 'DELETE', orderPath(order));
  }

  /**
   * Has the hold last so many seconds from its creation, or longer if it does already. `hold` is their
   * number or `{seconds, session}`: `session` names the checkout session in which the buyer pays.
   */
  async extendHold(order, hold) {
    return this.#send(asOrder(order), 'POST', orderPath(order, '/hold'), holdChange(hold));
  }

  /** Notes that the money of an order was returned. */
  async refund(order) {
    return this.#send(asOrder(order), 'POST', orderPath(order, '/refund'));
  }

  /**
   * Places a cart for a buyer, whose own request with the same key is a repeat of it. It is as `placeCart`
   * of a buyer, and its `amount` may be anything: less than the price of the lines, 0 or `unchecked`.
   */
  async placeCart(buyer, cart) {
    const headers = { 'idempotency-key': cart.key };
    const json = { buyer: checkText('buyer', buyer), lines: cart.lines, amount: cart.amount };
    const request = { method: 'POST', path: '/v1/carts', token: this.#token, headers, json };
    return this.#client.send(request, (response) => readPlacedCart(cart, response));
  }

  /** Reads any buyer's cart from the ledger. */
  async cart(cart) {
    return this.#send(asCart(cart), 'GET', cartPath(cart));
  }

  /** Cancels any buyer's held cart. The units of all lines can be bought again. */
  async cancelCart(cart) {
    return this.#send(asCart(cart), 'DELETE', cartPath(cart));
  }

  /**
   * Has the holds of all lines last so many seconds from the creation of the first order. `hold` is
   * their number or `{seconds, session}`, as with `extendHold`.
   */
  async extendCart(cart, hold) {
    return this.#send(asCart(cart), 'POST', cartPath(cart, '/hold'), holdChange(hold));
  }

  /** Notes that the money of a cart was returned. */
  async refundCart(cart) {
    return this.#send(asCart(cart), 'POST', cartPath(cart, '/refund'));
  }

  /**
   * Notes that the money of one line of a confirmed cart was returned. Returns the line's order; its
   * `amount` is its share of what the cart costs.
   */
  async refundCartLine(cart, order) {
    return this.#send(asOrder(order), 'POST', cartPath(cart, `/lines/${segment('order', order)}/refund`));
  }

  /** All recorded orders of an item, those in one state or all, page by page. */
  itemOrders(item, state) {
    return pages(this.#client, this.#token, itemPath(item, '/orders'), { state });
  }

  /** Who has done what to an item and its orders, the latest first, page by page. */
  journal(item) {
    return pages(this.#client, this.#token, itemPath(item, '/journal'));
  }

  /** What admins have done that belongs to no item, the latest first, page by page. */
  serviceJournal() {
    return pages(this.#client, this.#token, '/v1/journal');
  }

  /** All money that must be returned, page by page. */
  refundsDue() {
    return pages(this.#client, this.#token, '/v1/refunds-due');
  }

  /** Notes that the money of a row of `refundsDue` was returned. */
  async refundDone(row) {
    const path = `/v1/refunds-due/${segment('row', row)}/done`;
    return this.#send(readRefundDue, 'POST', path);
  }

  /**
   * Places orders `{buyer, quantity, key, ...}` of several buyers, at most 512; returns `{placed}` or
   * `{error}` for each, in this order. The whole request is repeated while its outcome is unknown,
   * but not single orders whose outcome is: `OrderBatcher` does that.
   */
  async placeBatch(item, orders) {
    const attempts = new Attempts();
    const read = (response) => readResults(item, orders, response);
    const results = await this.#client.send(this.#batch(item, orders), read, attempts);
    return results.map((result) =>
      result.error ? { error: attempts.judgePart(result.error) } : result,
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
    const read = (response) => ({
      data: response.data().map(readEvent),
      next: response.object().next,
    });
    return this.#client.send({ method: 'GET', path, token: this.#token, wait }, read);
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
    return (await this.#client.sendOnce({ ...request, token: this.#token })).object();
  }

  /** All webhooks, without their secrets. */
  async webhooks() {
    return this.#send((response) => response.data(), 'GET', '/v1/webhooks');
  }

  /** Removes a webhook. */
  async removeWebhook(webhook) {
    await this.#send((response) => response.nothing(), 'DELETE', webhookPath(webhook));
  }

  /** Enables a webhook that was disabled; what waits for it is sent now, in order. */
  async enableWebhook(webhook) {
    await this.#send((response) => response.nothing(), 'POST', webhookPath(webhook, '/enable'));
  }

  /** Sends a test event to a webhook now: `delivered`, and `status` or `error`. */
  async testWebhook(webhook) {
    return this.#send((response) => response.object(), 'POST', webhookPath(webhook, '/test'));
  }

  #send(read, method, path, json) {
    return this.#client.send({ method, path, token: this.#token, json }, read);
  }

  #change(item, method, rest, { json, key, version } = {}) {
    const headers = {};
    if (key !== undefined) headers['idempotency-key'] = key;
    if (version !== undefined) headers['if-match'] = `"${checkWhole('version', version)}"`;
    const request = { method, path: itemPath(item, rest), token: this.#token, headers, json };
    return this.#client.send(request, asItem(item));
  }

  #batch(item, orders) {
    const lines = orders.map(checkedBuyerOrder);
    const path = itemPath(item, '/orders:batch');
    return { method: 'POST', path, token: this.#token, json: { orders: lines } };
  }
}

const asItem = (id) => (response) => readItem(response, id);
const asOrder = (id) => (response) => readOrder(response, id);
const asCart = (id) => (response) => readCart(response, id);

/** A row of the money that is due; what is missing violates the contract. */
function readRefundDue(response) {
  const row = response.object();
  checkFields(row, REFUND_DUE, response.status);
  return withTimes(row);
}

async function* pages(client, token, path, parameters) {
  for (let after; after !== null; ) {
    const all = query({ ...parameters, after, limit: ROWS });
    const read = (response) => ({ data: response.data(), next: response.object().next ?? null });
    const { data, next } = await client.send({ method: 'GET', path: path + all, token }, read);
    yield* data.map(withTimes);
    after = next;
  }
}

function holdChange(hold) {
  if (typeof hold === 'number') return { seconds: hold };
  const { seconds, session } = hold;
  return { seconds, session };
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

function webhookPath(webhook, rest = '') {
  return `/v1/webhooks/${segment('webhook', webhook)}${rest}`;
}

/** A segment of a path. `fetch` resolves `.` and `..`, and an empty one is another path. */
function segment(field, name) {
  if (['', '.', '..'].includes(String(name ?? ''))) {
    throw new InvalidInput(field, 'a name that is not empty, `.` or `..`');
  }
  return encodeURIComponent(name);
}
