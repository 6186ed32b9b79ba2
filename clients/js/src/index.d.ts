// The types of the JavaScript client.

import type {
  Audit,
  BuyerOrder,
  BuyerOrderOptions,
  Cart,
  CartPayment,
  CartState,
  Erased,
  Event,
  EventPage,
  Item,
  ItemPatch,
  Items,
  JournalEntry,
  ListedItem,
  ListedOrder,
  NewItem,
  NewOrder,
  NewOrderOptions,
  Order,
  OrderState,
  Payment,
  RefundDue,
  RegisteredWebhook,
  ServiceJournalEntry,
  SettableState,
  WebhookTest,
} from './types.js';

export * from './types.js';

/** Whether the units of an order or a cart belong to the buyer: it is `held` or `confirmed`. */
export function hasUnits(placed: { state: string }): boolean;

export function newOrder(
  item: string,
  quantity?: number,
  keyOrOptions?: string | NewOrderOptions,
): NewOrder;

export interface Placed {
  /** The order as it is now: `held`, or after a replay perhaps `confirmed`. */
  order: Order;
  /** Whether an earlier request with this key had placed it. */
  replayed: boolean;
  /** Whether the ledger has the order (201). Otherwise (202) only Redis has it. */
  recorded: boolean;
}

/** A cart to be placed: the same value is always the same cart. */
export interface NewCart {
  readonly lines: readonly { readonly item: string; readonly quantity: number }[];
  readonly key: string;
  readonly amount?: number | 'unchecked';
}
export function newCart(
  lines: { item: string; quantity?: number }[],
  keyOrOptions?: string | NewCartOptions,
): NewCart;
export interface NewCartOptions {
  key?: string;
  /**
   * The shop's total with shipping, tax and vouchers, in the currency's smallest unit. Default: the price.
   * Only an admin states less, or `unchecked`: a payment of any amount pays the cart.
   */
  amount?: number | 'unchecked';
}

export interface PlacedCart {
  /** The cart as it is now: `held`, or after a replay perhaps `confirmed`. */
  cart: Cart;
  /** Whether an earlier request with this key had placed it. */
  replayed: boolean;
}

/** The version that the item must have. */
export interface IfVersion {
  version?: number;
}

export interface Problem {
  status: number;
  /** Empty: the body was no problem+json, so a proxy has answered. */
  code: string;
  detail: string;
  field?: string;
  /** The item because of which a cart was refused. */
  item?: string;
  /** Of a refused order or cart: whether its key is decided for good. */
  final: boolean;
  /** Seconds that the service asks to wait before a repeat. */
  retryAfter?: number;
}

export class StockadeError extends Error {
  readonly problem?: Problem;
  /** Whether the request may have taken effect although it failed. */
  readonly isOutcomeUnknown: boolean;
  /** Whether a repeat of the same request can find out what happened. */
  readonly isRetryable: boolean;
  /** False for a refusal that wrote nothing: keep the key, a repeat is decided anew. */
  readonly isFinal: boolean;
  /** Whether this is the service's own decision, which counts for earlier attempts as well. */
  readonly settlesKey: boolean;
  /** Whether a report of a payment was refused so that its money must be returned. */
  readonly returnsMoney: boolean;
  readonly retryAfter?: number;
  isCode(code: string): boolean;
}
export class Refused extends StockadeError {
  readonly problem: Problem;
}
/** The key is that of an order or a cart which has ended: a new attempt needs a new key. */
export class NoLongerHeld extends StockadeError {
  /** The order as it is now, if an order was placed. */
  readonly order?: Order;
  /** The cart as it is now, if a cart was placed. */
  readonly cart?: Cart;
  readonly state: OrderState | CartState;
}
export class OutcomeUnknown extends StockadeError {
  readonly attempts: number;
  /** How a later attempt ended, if that settles nothing. */
  readonly answer?: StockadeError;
  /** False if each attempt was answered that nothing ran (`unavailable`). */
  readonly mayHaveRun: boolean;
}
export class Contract extends StockadeError {
  readonly status: number;
  readonly violation: string;
}
export class InvalidInput extends StockadeError {
  readonly field: string;
  readonly expected: string;
}
export class InvalidSignature extends Error {}

/** All times are in milliseconds. */
export interface RetryPolicy {
  /** No attempt begins later. */
  deadline: number;
  /** Pause after the first attempt; it doubles up to `pauseMax`. `Retry-After` may make it longer. */
  pause: number;
  pauseMax: number;
}

export class Client {
  constructor(
    urls: string | string[],
    options?: { retry?: Partial<RetryPolicy>; attemptTimeout?: number },
  );
  readonly retry: RetryPolicy;
  buyer(token: string): Buyer;
  admin(token: string): Admin;
  paymentProvider(secret: string): PaymentProvider;
  item(item: string): Promise<Item>;
  items(items: string[]): Promise<Items>;
}

/** Seconds, or the checkout session in which the buyer pays, or both. */
export type HoldChange =
  | number
  | { seconds: number; session?: string }
  | { seconds?: number; session: string };

export class Buyer {
  private constructor();
  place(order: NewOrder): Promise<Placed>;
  order(order: string): Promise<Order>;
  cancel(order: string): Promise<Order>;
  extendHold(order: string, hold: HoldChange): Promise<Order>;
  placeCart(cart: NewCart): Promise<PlacedCart>;
  cart(cart: string): Promise<Cart>;
  cancelCart(cart: string): Promise<Cart>;
  extendCart(cart: string, hold: HoldChange): Promise<Cart>;
  orders(): AsyncGenerator<ListedOrder>;
  carts(): AsyncGenerator<Cart>;
}

export class PaymentProvider {
  private constructor();
  report(payment: Payment): Promise<Order>;
  reportCart(payment: CartPayment): Promise<Cart>;
}

export class Admin {
  private constructor();
  readonly retry: RetryPolicy;
  createItem(item: NewItem): Promise<Item>;
  item(item: string): Promise<Item>;
  items(): AsyncGenerator<ListedItem>;
  setState(item: string, state: SettableState, options?: IfVersion): Promise<Item>;
  patchItem(item: string, changes: ItemPatch, options?: IfVersion): Promise<Item>;
  addStock(item: string, units: number, key: string, options?: IfVersion): Promise<Item>;
  withdrawStock(item: string, units: number, key: string, options?: IfVersion): Promise<Item>;
  setStock(item: string, stock: number, version: number): Promise<Item>;
  archiveItem(item: string, options?: IfVersion): Promise<Item>;
  dropItem(item: string): Promise<Item>;
  eraseBuyer(buyer: string): Promise<Erased>;
  audit(item: string, options?: { full?: boolean }): Promise<Audit>;
  order(order: string): Promise<Order>;
  cancel(order: string): Promise<Order>;
  extendHold(order: string, hold: HoldChange): Promise<Order>;
  refund(order: string): Promise<Order>;
  placeCart(buyer: string, cart: NewCart): Promise<PlacedCart>;
  cart(cart: string): Promise<Cart>;
  cancelCart(cart: string): Promise<Cart>;
  extendCart(cart: string, hold: HoldChange): Promise<Cart>;
  refundCart(cart: string): Promise<Cart>;
  refundCartLine(cart: string, order: string): Promise<Order>;
  itemOrders(item: string, state?: OrderState): AsyncGenerator<ListedOrder>;
  journal(item: string): AsyncGenerator<JournalEntry>;
  serviceJournal(): AsyncGenerator<ServiceJournalEntry>;
  refundsDue(): AsyncGenerator<RefundDue>;
  refundDone(row: string): Promise<RefundDue>;
  placeBatch(item: string, orders: BuyerOrder[]): Promise<BatchResult[]>;
  placeBatchOnce(item: string, orders: BuyerOrder[]): Promise<BatchResult[]>;
  eventPage(options?: { after?: string; wait?: number; limit?: number }): Promise<EventPage>;
  events(options?: { after?: string; wait?: number }): AsyncGenerator<Event>;
  createWebhook(url: string, kinds?: string[]): Promise<RegisteredWebhook & { secret: string }>;
  webhooks(): Promise<RegisteredWebhook[]>;
  removeWebhook(webhook: string): Promise<void>;
  enableWebhook(webhook: string): Promise<void>;
  testWebhook(webhook: string): Promise<WebhookTest>;
}

export type BatchResult =
  | { placed: Placed; error?: undefined }
  | { placed?: undefined; error: StockadeError };

export class OrderBatcher {
  constructor(admin: Admin, item: string, options?: { flights?: number });
  order(
    buyer: string,
    quantity: number,
    key: string,
    options?: BuyerOrderOptions,
  ): Promise<Placed>;
}

export function mintBuyer(
  secret: string,
  buyer: string,
  options?: { issuer?: string; audience?: string; lifetime?: number; now?: Date },
): string;
export function signPayment(
  secret: string,
  body: string | Uint8Array,
  options?: { now?: Date },
): string;

export class Webhook {
  constructor(secrets: string | string[], options?: { tolerance?: number });
  verify(headers: WebhookHeaders, body: string | Uint8Array, options?: { now?: Date }): Event;
  check(headers: WebhookHeaders, body: string | Uint8Array, options?: { now?: Date }): void;
}
/** Names are in any case. */
export type WebhookHeaders =
  | Headers
  | Record<string, string | string[] | undefined>
  | Iterable<[string, string]>;
