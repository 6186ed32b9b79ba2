// The types of the JavaScript client.

export type OrderState =
  | 'held'
  | 'confirmed'
  | 'cancelled'
  | 'expired'
  | 'refund_due'
  | 'refunded'
  | 'rejected';

/** Whether the units of an order or a cart belong to the buyer: it is `held` or `confirmed`. */
export function hasUnits(placed: { state: string }): boolean;

/** An order to be placed: the same value is always the same order. */
export interface NewOrder {
  readonly item: string;
  readonly quantity: number;
  readonly key: string;
  readonly amount?: number;
}
export function newOrder(
  item: string,
  quantity?: number,
  keyOrOptions?: string | NewOrderOptions,
): NewOrder;
export interface NewOrderOptions {
  key?: string;
  /** The shop's total with shipping and tax, in the currency's smallest unit. Default: the price. */
  amount?: number;
}

export interface Order {
  id: string;
  item: string;
  quantity: number;
  state: OrderState;
  /** The price of one unit when the order was placed, in the currency's smallest unit. */
  price: number;
  /** What it costs: the price of all units, or the shop's total. */
  amount: number;
  currency: string;
  /** When a held order expires. */
  expires_at: Date;
  /** Rises with every transition. */
  version: number;
  created_at?: Date | null;
  /** The provider's id of the payment. */
  payment?: string | null;
  /** Only admins see it. */
  buyer?: string;
}

export interface Placed {
  /** The order as it is now: `held`, or after a replay perhaps `confirmed`. */
  order: Order;
  /** Whether an earlier request with this key had placed it. */
  replayed: boolean;
  /** Whether the ledger has the order (201). Otherwise (202) only Redis has it. */
  recorded: boolean;
}

export type ListedOrder = Omit<Order, 'price'>;

export type CartState = 'placing' | 'failed' | Exclude<OrderState, 'rejected'>;

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

/** The order for one item, which the cart alone changes. */
export interface CartLine {
  item: string;
  order: string;
  quantity: number;
}

export interface Cart {
  id: string;
  state: CartState;
  lines: CartLine[];
  /** What it costs, in the currency's smallest unit: the price of all lines, or the shop's total. */
  amount: number;
  /** A payment of any amount pays it, and `amount` is what was paid once it is. */
  amount_check?: 'unchecked';
  currency: string;
  /** When the holds of a held cart end. */
  expires_at: Date;
  /** The provider's id of the payment. */
  payment?: string;
  /** Why it is `failed`. */
  code?: string;
  /** The item because of which it is `failed`. */
  item?: string;
}

export interface PlacedCart {
  /** The cart as it is now: `held`, or after a replay perhaps `confirmed`. */
  cart: Cart;
  /** Whether an earlier request with this key had placed it. */
  replayed: boolean;
}

export interface CartPayment {
  /** The provider's id: every repeat has the same one. */
  payment: string;
  cart: string;
  /** What was paid. A cart that costs something needs it, and an unchecked one. */
  amount?: number;
  /** What it was paid in (ISO 4217): that of the cart. */
  currency?: string;
}

export interface NewItem {
  id: string;
  stock: number;
  title?: string;
  /** The price of one unit in the currency's smallest unit. */
  price?: number;
  currency?: string;
  limit_per_buyer?: number;
  segments?: number;
  opens_at?: string;
  closes_at?: string;
  hold_seconds?: number;
  max_hold_seconds?: number;
  max_per_order?: number;
  waves?: { at: string; units: number }[];
  durability?: 'recorded' | 'replicated' | 'accepted';
}

export interface Item {
  id: string;
  title: string;
  state: 'open' | 'paused' | 'closed' | 'archived';
  stock: number;
  available: number;
  held: number;
  confirmed: number;
  returning: number;
  sold_out: boolean;
  price: number;
  currency: string;
  limit_per_buyer: number | null;
  opens_at: Date | null;
  closes_at: Date | null;
  hold_seconds: number;
  /** Seconds up to which a hold can be extended. */
  max_hold_seconds: number;
  max_per_order?: number | null;
  durability: 'recorded' | 'replicated' | 'accepted';
  /** The next units that will be added. */
  next_wave?: { at: string; units: number } | null;
  /** Units of open withdrawals, which `stock` still counts. Only admins see it, and what follows. */
  withdrawing?: number;
  waves?: { at: string; units: number; added: boolean }[];
  segments?: Record<string, number>[];
  /** The version for conditional changes. */
  version?: number;
  /** Whether a change is recorded and not complete yet (202): a reconciler will complete it. */
  pending: boolean;
}

/** Several items, as the public sees them. */
export interface Items {
  /** In the order of the request. */
  data: Item[];
  /** Names that no item has. */
  unknown: string[];
  /** Items whose units could not be read now. */
  unavailable: string[];
}

/** An item in a list. Its numbers are those that the ledger has recorded. */
export interface ListedItem {
  id: string;
  title: string;
  state: Item['state'];
  stock: number;
  available: number;
  held: number;
  confirmed: number;
  returning: number;
  price: number;
  currency: string;
  limit_per_buyer: number | null;
  opens_at: Date | null;
  closes_at: Date | null;
  hold_seconds: number;
  durability: Item['durability'];
  segment_count: number;
  version: number;
}

/** Fields that are absent stay as they are; null removes one. */
export interface ItemPatch {
  limit_per_buyer?: number | null;
  opens_at?: string | null;
  closes_at?: string | null;
  waves?: { at: string; units: number }[] | null;
  /** For orders to come. */
  price?: number;
}

/** What became of a buyer's name. */
export interface Erased {
  /** Orders that lost the name now. Those of an earlier call are not counted again. */
  erased: number;
  /** Orders that keep it until their items are archived. */
  kept: number;
}

/** The version that the item must have. */
export interface IfVersion {
  version?: number;
}

export interface Payment {
  /** The provider's id: every repeat has the same one. */
  payment: string;
  order: string;
  /** What was paid. An order with a price needs it. */
  amount?: number;
  /** What it was paid in (ISO 4217): that of the order. */
  currency?: string;
}

export interface RefundDue {
  id: string;
  reason: 'refund_due' | 'unmatched_payment' | 'refund_failed';
  order: string;
  item: string;
  buyer: string | null;
  state: OrderState;
  quantity: number | null;
  payment: string | null;
  amount: number | null;
  currency: string;
  /** The key for the provider's refund: with it, a repeat returns the money once. */
  idempotency_key: string;
  reported_at: Date | null;
  /** The cart that the order is a line of, or that was paid. */
  cart: string | null;
}

/** Who has done what to an item or its orders. */
export interface JournalEntry {
  id: number;
  at: Date;
  /** The name of an admin, or `reconciler`, `payment`, `cli:ACCOUNT`, ... */
  actor: string;
  /** Such as `create`, `refund`, `cancel`. */
  action: string;
  /** The fencing token under which it was done, if there was one. */
  token: number | null;
  before: Record<string, unknown>;
  after: Record<string, unknown>;
}

/** What an admin has done that belongs to no item, such as a webhook or an erasure. */
export interface ServiceJournalEntry {
  id: number;
  at: Date;
  actor: string;
  /** Such as `create_webhook`. */
  action: string;
  /** The id of a webhook. */
  subject: string | null;
  before: Record<string, unknown>;
  after: Record<string, unknown>;
}

export interface Event {
  /** A repeat has the same. It is a cursor too. */
  id: string;
  /** Such as `stockade.order.held`. */
  type: string;
  /** The type without `stockade.`. */
  kind: string;
  time: Date;
  /** The item. A test event has none. */
  subject?: string;
  data: Record<string, unknown>;
  /** The orders that it happened to. */
  orders: string[];
  /** The cart that it happened to: `data.cart` of a `cart.` event. */
  cart?: string;
}

export interface EventPage {
  data: Event[];
  /** Store it with what you did about the events. */
  next: string | null;
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

export interface BuyerOrder {
  buyer: string;
  quantity: number;
  key: string;
  /** The shop's total, which may be less than the price of the units. Default: that price. */
  amount?: number;
}

export class Admin {
  private constructor();
  readonly retry: RetryPolicy;
  createItem(item: NewItem): Promise<Item>;
  item(item: string): Promise<Item>;
  items(): AsyncGenerator<ListedItem>;
  setState(item: string, state: 'open' | 'paused' | 'closed', options?: IfVersion): Promise<Item>;
  patchItem(item: string, changes: ItemPatch, options?: IfVersion): Promise<Item>;
  addStock(item: string, units: number, key: string, options?: IfVersion): Promise<Item>;
  withdrawStock(item: string, units: number, key: string, options?: IfVersion): Promise<Item>;
  setStock(item: string, stock: number, version: number): Promise<Item>;
  archiveItem(item: string, options?: IfVersion): Promise<Item>;
  dropItem(item: string): Promise<Item>;
  eraseBuyer(buyer: string): Promise<Erased>;
  audit(item: string, options?: { full?: boolean }): Promise<Record<string, unknown>>;
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
  createWebhook(url: string, kinds?: string[]): Promise<{ id: string; url: string; secret: string }>;
  webhooks(): Promise<Record<string, unknown>[]>;
  removeWebhook(webhook: string): Promise<void>;
  enableWebhook(webhook: string): Promise<void>;
  testWebhook(webhook: string): Promise<{ delivered: boolean; status?: number | null; error?: string | null }>;
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
    options?: { amount?: number },
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
