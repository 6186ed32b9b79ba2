// What the API takes and answers.
//
// `make clients` writes this file from `docs/openapi.json`. Fields that a later service adds are
// ignored. A state, a reason or another word may be one that a later service has.

import type { EventParts } from './parts.js';

/** How payments of a cart are checked, if not against its amount. */
export type AmountCheck = 'unchecked';

/** The state of a cart. */
export type CartState =
  | 'placing'
  | 'held'
  | 'confirmed'
  | 'cancelled'
  | 'expired'
  | 'refund_due'
  | 'refunded'
  | 'failed';

/** When an order is acknowledged. */
export type Durability = 'recorded' | 'accepted' | 'replicated';

/** The state of an item. */
export type ItemState = 'open' | 'paused' | 'closed' | 'archived';

/** The state of an order. */
export type OrderState =
  | 'held'
  | 'confirmed'
  | 'cancelled'
  | 'expired'
  | 'refund_due'
  | 'refunded'
  | 'rejected';

/** Why money must be returned. */
export type RefundReason = 'refund_due' | 'unmatched_payment' | 'refund_failed';

/** The states that an item can be set to. It is archived by a call of its own. */
export type SettableState = 'open' | 'paused' | 'closed';

/** An order. */
export interface Order {
  /** The order's id. */
  id: string;
  /** The item that was ordered. */
  item: string;
  /** Number of units that the order asks for. */
  quantity: number;
  /** The order's state. */
  state: OrderState;
  /** The price of one unit in the currency's smallest unit. */
  price: number;
  /**
   * What it costs, in the currency's smallest unit: the price of all units, or the shop's total.
   */
  amount: number;
  /** ISO 4217. */
  currency: string;
  /** The provider's id of the payment, or null. */
  payment: string | null;
  /** When its units were taken first. */
  created_at: Date | null;
  /** When the hold expires. */
  expires_at: Date;
  /** Rises with every transition. */
  version: number;
  /** The buyer. Only for admins. */
  buyer?: string;
  /** The cart that it is a line of, which alone changes it. */
  cart?: string;
}

/** An order in a list. */
export interface ListedOrder {
  /** The order's id. */
  id: string;
  /** The item that was ordered. */
  item: string;
  /** The order's state. */
  state: OrderState;
  /** Number of units. */
  quantity: number;
  /**
   * What it costs, in the currency's smallest unit: the price of all units, or the shop's total.
   */
  amount: number;
  /** ISO 4217. */
  currency: string;
  /** The provider's id of the payment, if there was one. */
  payment: string | null;
  /** When its units were taken first. */
  created_at: Date | null;
  /** When the hold expires or has expired. */
  expires_at: Date;
  /** Rises with every transition. */
  version: number;
  /** The cart that it is a line of, which alone changes it; null if there is none. */
  cart: string | null;
  /** The buyer. Only for admins. */
  buyer?: string;
}

/** An order to be placed. The same value is always the same order: create it once. */
export interface NewOrder {
  /** The item. */
  readonly item: string;
  /** Number of units that the order asks for. */
  readonly quantity: number;
  /** Store it before you send the request, if the order must survive a crash of your process. */
  readonly key: string;
  /**
   * The total of the shop in the currency's smallest unit, with shipping, tax and other goods: only
   * a payment of this amount pays the order. Default: quantity times price. A buyer states no less.
   */
  readonly amount?: number;
}

/** What `newOrder` takes instead of a key. */
export interface NewOrderOptions {
  /**
   * The total of the shop in the currency's smallest unit, with shipping, tax and other goods: only
   * a payment of this amount pays the order. Default: quantity times price. A buyer states no less.
   */
  amount?: number;
  /** Default: a new one. */
  key?: string;
}

/** An order of a batch. */
export interface BuyerOrder {
  /** The buyer: what `sub` is in a buyer's token. */
  buyer: string;
  /** Number of units that the order asks for. */
  quantity: number;
  /**
   * Identifies the order among the buyer's orders, as `Idempotency-Key` does: 1 to 255 visible
   * ASCII characters.
   */
  key: string;
  /** The total of the shop, which may be less than quantity times price. Default: that. */
  amount?: number;
}

/** What an `OrderBatcher` takes besides the buyer, the quantity and the key. */
export type BuyerOrderOptions = {
  /** The total of the shop, which may be less than quantity times price. Default: that. */
  amount?: number;
};

/** A payment that the provider reports. */
export interface Payment {
  /** The provider's id of the payment, the same in a repeat: 1 to 255 visible ASCII characters. */
  payment: string;
  /** The order that was paid: the order of the path, which the signature does not cover. */
  order: string;
  /**
   * Amount paid in the currency's smallest unit: the `amount` of the order. Required if it has one.
   */
  amount?: number;
  /**
   * The currency that it was paid in (ISO 4217, three capital letters): that of the order. Default:
   * it is not checked.
   */
  currency?: string;
}

/** A cart. */
export interface Cart {
  /** The cart's id. */
  id: string;
  /** The cart's state. */
  state: CartState;
  /** Its orders, as they were listed. */
  lines: CartLine[];
  /**
   * What it costs, in the currency's smallest unit: the price of all lines, or the shop's total.
   */
  amount: number;
  /** ISO 4217. */
  currency: string;
  /** When the holds expire; while it is `placing`, when placing it fails. */
  expires_at: Date;
  /**
   * `unchecked`: a payment of any amount pays the cart, and `amount` is what was paid once it is.
   * Absent: only a payment of `amount` pays it.
   */
  amount_check?: AmountCheck;
  /** Why it is `failed`. */
  code?: string;
  /** The item because of which it is `failed`. */
  item?: string;
  /** The provider's id of the payment, if there was one. */
  payment?: string;
}

/** A line of a cart. */
export interface CartLine {
  /** The item. */
  item: string;
  /** Id of the line's order, which the cart alone changes. */
  order: string;
  /** Number of units. */
  quantity: number;
}

/** A payment of a cart that the provider reports. */
export interface CartPayment {
  /** The provider's id of the payment, the same in a repeat: 1 to 255 visible ASCII characters. */
  payment: string;
  /** The cart that was paid: the cart of the path, which the signature does not cover. */
  cart: string;
  /**
   * Amount paid in the currency's smallest unit: the `amount` of the cart, or any if it is
   * `unchecked`. Required unless the cart costs nothing.
   */
  amount?: number;
  /**
   * The currency that it was paid in (ISO 4217, three capital letters): that of the cart. Default:
   * it is not checked.
   */
  currency?: string;
}

/** A new item. `id` and `stock` are required; all other fields have defaults. */
export interface NewItem {
  /** The item's id: 1 to 64 of `A-Z a-z 0-9 . _ -`, and neither `.` nor `..`. */
  id: string;
  /** Units that exist. */
  stock: number;
  /** The first moment at which it does not sell any more. Default: no end. */
  closes_at?: string;
  /** ISO 4217, three capital letters. Default: `USD`. */
  currency?: string;
  /** When an order is acknowledged: `recorded` (default), `accepted` or `replicated`. */
  durability?: Durability;
  /** Seconds for which an order holds its units. Default: 900. */
  hold_seconds?: number;
  /** Units that one buyer may hold. Default: no limit. */
  limit_per_buyer?: number;
  /**
   * Seconds up to which a buyer can extend the hold of an order. Default: `hold_seconds`, so that
   * no buyer can.
   */
  max_hold_seconds?: number;
  /** Units that one order may ask for. Default: no limit. */
  max_per_order?: number;
  /** The first moment at which it sells. Default: no start. */
  opens_at?: string;
  /** The price of one unit in the currency's smallest unit. Default: 0. */
  price?: number;
  /** Number of segments. Default: one for each Redis master, fewer for a small stock. */
  segments?: number;
  /** The title that buyers see, 200 characters at most. Default: the id. */
  title?: string;
  /** Units that are added later, each at its time. Default: none. */
  waves?: NewWave[];
}

/** Changes of an item. Fields that are absent stay as they are; null removes a limit or a time. */
export interface ItemPatch {
  /** The first moment at which it does not sell any more. */
  closes_at?: string | null;
  /** Units that one buyer may hold. */
  limit_per_buyer?: number | null;
  /** The first moment at which it sells. */
  opens_at?: string | null;
  /**
   * The price of one unit in the currency's smallest unit, for orders to come. It cannot be null.
   */
  price?: number;
  /** The waves that are to come; null or an empty list: none. Waves that were added stay. */
  waves?: NewWave[] | null;
}

/** An item and its counts. */
export interface Item {
  /** The item's id. */
  id: string;
  /** The title that buyers see. */
  title: string;
  /** The item's state. */
  state: ItemState;
  /** Units that exist. */
  stock: number;
  /** Units that can be sold. */
  available: number;
  /** Units of orders that wait for payment. */
  held: number;
  /** Units of paid orders. */
  confirmed: number;
  /** Units of orders that have ended, on their way back. */
  returning: number;
  /** Whether no unit is available. */
  sold_out: boolean;
  /** The price of one unit in the currency's smallest unit, for orders to come. */
  price: number;
  /** ISO 4217. */
  currency: string;
  /** Units that one buyer may hold; null means no limit. */
  limit_per_buyer: number | null;
  /** The first moment at which it sells. */
  opens_at: Date | null;
  /** The first moment at which it does not sell any more. */
  closes_at: Date | null;
  /** Seconds for which an order holds its units. */
  hold_seconds: number;
  /** Seconds up to which the hold of an order can be extended. */
  max_hold_seconds: number;
  /** Units that one order may ask for; null means no limit. */
  max_per_order: number | null;
  /** The next units that will be added; null: none. */
  next_wave: NextWave | null;
  /** When an order is acknowledged: `recorded`, `accepted` or `replicated`. */
  durability: Durability;
  /** The item's segments. Only for admins. */
  segments?: Segment[];
  /** All waves, earliest first, those that were added included. Only for admins. */
  waves?: Wave[];
  /** Units of open withdrawals, which `stock` still counts. Only for admins. */
  withdrawing?: number;
  /** The version for conditional changes, from the header `ETag`. */
  version?: number;
  /** Whether a change is recorded and not complete yet (202): a reconciler will complete it. */
  pending: boolean;
}

/** Several items. */
export interface Items {
  /** The items, in the order of the request. */
  data: Item[];
  /** Names that no item has. */
  unknown: string[];
  /** Items whose units could not be read now. The others are shown all the same. */
  unavailable: string[];
}

/** An item in a list. Its counts are those of the ledger, which may lag behind Redis. */
export interface ListedItem {
  /** The item's id. */
  id: string;
  /** The title that buyers see. */
  title: string;
  /** The item's state. */
  state: ItemState;
  /** Units that exist. */
  stock: number;
  /** Units that no recorded order has. */
  available: number;
  /** Units of orders that wait for payment. */
  held: number;
  /** Units of paid orders. */
  confirmed: number;
  /** Units of orders that have ended, on their way back. */
  returning: number;
  /** The price of one unit in the currency's smallest unit, for orders to come. */
  price: number;
  /** ISO 4217. */
  currency: string;
  /** Units that one buyer may hold; null means no limit. */
  limit_per_buyer: number | null;
  /** The first moment at which it sells. */
  opens_at: Date | null;
  /** The first moment at which it does not sell any more. */
  closes_at: Date | null;
  /** Seconds for which an order holds its units. */
  hold_seconds: number;
  /** When an order is acknowledged: `recorded`, `accepted` or `replicated`. */
  durability: Durability;
  /** Number of segments. */
  segment_count: number;
  /** Rises with every change of the item. `If-Match` takes it. */
  version: number;
}

/** Units that are added at a time. */
export type NewWave = {
  /** When they are added. It identifies the wave among those of the item. */
  at: string;
  /** Number of units. */
  units: number;
};

/** Units that will be added. */
export type NextWave = {
  /** When they are added. */
  at: string;
  /** Number of units. */
  units: number;
};

/** A wave of an item. */
export type Wave = {
  /** When its units are added. */
  at: string;
  /** Number of units. */
  units: number;
  /** Whether they were added. */
  added: boolean;
};

/** A segment and its counts. */
export type Segment = {
  /** Number of the segment. */
  segment: number;
  /** Units that belong to it. */
  allocated: number;
  /** Units that can be sold. */
  available: number;
  /** Units of orders that wait for payment. */
  held: number;
  /** Units of paid orders. */
  confirmed: number;
  /** Units of orders that have ended, on their way back. */
  returning: number;
  /** Pending spillovers of orders whose home is this segment. */
  spillovers: number;
  /** Outbox entries that are not trimmed, including the anchor. */
  outbox: number;
};

/** The conservation invariant of an item. */
export type Audit = {
  /** The item. */
  item: string;
  /** Units that exist. */
  stock: number;
  /** Free units in Redis. */
  available: number;
  /** Units of orders that wait for payment, by the ledger. */
  held: number;
  /** Units of paid orders. */
  confirmed: number;
  /** Units of orders that have ended, on their way back. */
  returning: number;
  /** Units on their way from one segment to another, into the stock, or out of it. */
  in_transit: number;
  /** Units that were taken in Redis and are on their way to the ledger. */
  in_flight: number;
  /**
   * Units that the invariant does not explain, summed over the segments without sign. Must be 0.
   */
  drift: number;
  /**
   * Units by which the orders differ from the counters of their rows, summed over the segments
   * without sign; drift includes them. Must be 0. By the full audit that `orders_checked` tells of.
   */
  miscounted: number;
  /**
   * Units promised beyond the stock. Must be 0. By the counters of the segments, and by the orders
   * as of the full audit that `orders_checked` tells of.
   */
  oversold: number;
  /** Orders that the ledger refused to cover. Their buyers received `sold_out`. */
  rejected_orders: number;
  /** Paid orders without units, whose money must be returned. */
  refund_due_orders: number;
  /** `true` if drift and oversold are 0. */
  ok: boolean;
  /**
   * What is known of the orders themselves: when a full audit has read all of them, and what it
   * found.
   */
  orders_checked: OrdersChecked;
  /** The segments. */
  segments: AuditedSegment[];
  /** When the item was archived: this is its final audit. Later refunds are not in it. */
  archived_at?: string;
  /** When the last order of the archived item was dropped: the ledger has this audit alone. */
  dropped_at?: string;
};

/** The conservation invariant of a segment. */
export type AuditedSegment = {
  /** Number of the segment. */
  segment: number;
  /** Units that belong to it. */
  allocated: number;
  /** Free units in Redis; null if the segment does not exist there. */
  available: number | null;
  /** Free units at the checkpoint. */
  available_at_checkpoint: number;
  /** Units of orders that wait for payment, at the checkpoint. */
  held: number;
  /** Units of paid orders. */
  confirmed: number;
  /** Units of orders that have ended, on their way back. */
  returning: number;
  /** Units that were taken after the checkpoint. */
  in_flight: number;
  /** The last outbox entry that the ledger has recorded. */
  checkpoint: string | null;
  /** The last outbox entry. */
  last: string | null;
  /** Units in Redis beyond those of the invariant; negative if Redis has fewer. Must be 0. */
  drift: number;
  /** The anomaly in words, if there is one. */
  finding?: string;
};

/**
 * What the last full audits have found when they compared all orders of the item with the counters.
 */
export type OrdersChecked = {
  /**
   * When the last good one began: all orders agreed with the counters. Null: there was none yet.
   */
  at: string | null;
  /**
   * `true` if the counters are those that all orders add up to, and no later audit has found a
   * fault: nothing has changed since that audit, or whatever has was compared, too. `false`: units
   * were ordered, paid for or returned since.
   */
  current: boolean;
  /** The fault that the last full audit has found, until a later one finds none. */
  fault?: OrdersFault;
};

/** What a full audit has found wrong with the orders of an item. */
export type OrdersFault = {
  /** When it was found. */
  at: string;
  /** Units by which the orders differed from the counters. */
  miscounted: number;
  /** Units promised beyond the stock. */
  oversold: number;
};

/** Result of an erasure. */
export interface Erased {
  /** Orders that this request has erased the name from. */
  erased: number;
  /** Orders that keep the name until their items are archived. Repeat the request then. */
  kept: number;
}

/** Money that must be returned. */
export interface RefundDue {
  /** Names the row: the order's id, or `journal-` and the number of the journal entry. */
  id: string;
  /** Why it must be returned. */
  reason: RefundReason;
  /** The order that was paid. */
  order: string;
  /** The item of the order. */
  item: string;
  /** The buyer; null for an unmatched payment and a failed refund. */
  buyer: string | null;
  /** The order's state. For an unmatched payment and a failed refund: when that was reported. */
  state: OrderState;
  /** Number of units; null for an unmatched payment and a failed refund. */
  quantity: number | null;
  /** The provider's id of the payment. */
  payment: string | null;
  /**
   * The amount that is due, in the currency's smallest unit; null if the report had none. Of a line
   * of a cart that is `refund_due`: its share of the cart's `amount`.
   */
  amount: number | null;
  /** ISO 4217. */
  currency: string;
  /** When an unmatched payment or a failed refund was reported first; null for an order. */
  reported_at: Date | null;
  /**
   * An idempotency key for the provider's refund, always the same for this row: with it, a repeat
   * of the refund returns the money once. A refund that has failed has another one than before.
   */
  idempotency_key: string;
  /** The cart that the order is a line of, or that was paid; null if there is none. */
  cart: string | null;
}

/** An entry of an item's journal: who has done what to the item or its orders. */
export interface JournalEntry {
  /** The entry's number, which only rises. */
  id: number;
  /** When the change was made. */
  at: Date;
  /** Who made the change: the name of an admin, or `reconciler`, `payment`, `cli:ACCOUNT`, ... */
  actor: string;
  /** The action, for example `create`, `cancel` or `repair`. */
  action: string;
  /** The fencing token under which the change was made, if there was one. */
  token: number | null;
  /** The values before the change. */
  before: Record<string, unknown>;
  /** The values after the change. */
  after: Record<string, unknown>;
}

/** An entry of the service journal: what an admin has done that belongs to no item. */
export interface ServiceJournalEntry {
  /** The entry's number, which only rises. */
  id: number;
  /** When it was done. */
  at: Date;
  /** Who did it. */
  actor: string;
  /** The action, for example `create_webhook`. */
  action: string;
  /** What it was done to: the id of a webhook. */
  subject: string | null;
  /** The values before. */
  before: Record<string, unknown>;
  /** The values after. */
  after: Record<string, unknown>;
}

/** The envelope of an event. The fields are those of CloudEvents 1.0. */
export interface Event extends EventParts {
  /** Identifies the event: a repeat has the same. It is also the cursor behind the event. */
  id: string;
  /** `stockade.` and the kind. */
  type: string;
  /** The item; `test` in a test of a webhook. */
  subject?: string;
  /** When it happened. */
  time: Date;
  /** `orders`, the ids of the orders that it happened to, and properties of the kind. */
  data: Record<string, unknown>;
}

/** A page of events. */
export interface EventPage {
  /** The events, in order. Empty: there are none yet. */
  data: Event[];
  /** The cursor behind them: the `after` of the next request, also of an empty page. */
  next: string | null;
}

/** A webhook. */
export type RegisteredWebhook = {
  /** Its id. */
  id: string;
  /**
   * Where events are sent. Without the scope `webhooks:write` only the scheme and the host, because
   * the rest may hold a secret.
   */
  url: string;
  /** The kinds of events that are sent; empty: all. */
  kinds: string[];
  /** Failed attempts in a row. */
  failures: number;
  /** When the first of them failed. */
  failing_since: string | null;
  /** When the next attempt is due. */
  next_attempt_at: string | null;
  /** Why the last attempt failed. */
  last_error: string | null;
  /** Since when nothing is sent, because attempts failed for three days. */
  disabled_at: string | null;
  /** When it was created. */
  created_at?: string;
  /** The cursor of the last event that was delivered, or that is of another kind. */
  cursor?: string;
  /** The secret that signs its messages. Only in the answer to its creation. */
  secret?: string;
};

/** Result of a test. */
export type WebhookTest = {
  /** Whether the receiver has accepted the event. */
  delivered: boolean;
  /** The receiver's status, if it has accepted. */
  status: number | null;
  /** Why it was not delivered. */
  error: string | null;
};
