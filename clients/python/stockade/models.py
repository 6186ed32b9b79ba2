"""What the API takes and answers.

`make clients` writes this file from `docs/openapi.json`. Fields that a later service adds are
ignored. A state, a reason or another word may be one that a later service has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NotRequired, TypedDict

from . import checks
from .parts import EventParts, HasUnits, PaymentChecks, random_key

#: How payments of a cart are checked, if not against its amount.
AMOUNT_CHECKS = ("unchecked",)

#: The state of a cart.
CART_STATES = (
    "placing",
    "held",
    "confirmed",
    "cancelled",
    "expired",
    "refund_due",
    "refunded",
    "failed",
)

#: When an order is acknowledged.
DURABILITIES = ("recorded", "accepted", "replicated")

#: The state of an item.
ITEM_STATES = ("open", "paused", "closed", "archived")

#: The state of an order.
ORDER_STATES = ("held", "confirmed", "cancelled", "expired", "refund_due", "refunded", "rejected")

#: Why money must be returned.
REFUND_REASONS = ("refund_due", "unmatched_payment", "refund_failed")

#: The states that an item can be set to. It is archived by a call of its own.
SETTABLE_STATES = ("open", "paused", "closed")


@dataclass(frozen=True)
class Order(HasUnits):
    """An order."""

    #: The order's id.
    id: str
    #: The item that was ordered.
    item: str
    #: Number of units that the order asks for.
    quantity: int
    #: The order's state.
    state: str
    #: The price of one unit in the currency's smallest unit.
    price: int
    #: What it costs, in the currency's smallest unit: the price of all units, or the shop's total.
    amount: int
    #: ISO 4217.
    currency: str
    #: When the hold expires.
    expires_at: datetime
    #: Rises with every transition.
    version: int
    #: The provider's id of the payment, or null.
    payment: str | None = None
    #: When its units were taken first.
    created_at: datetime | None = None
    #: The buyer. Only for admins.
    buyer: str | None = None
    #: The cart that it is a line of, which alone changes it.
    cart: str | None = None


@dataclass(frozen=True)
class ListedOrder:
    """An order in a list."""

    #: The order's id.
    id: str
    #: The item that was ordered.
    item: str
    #: The order's state.
    state: str
    #: Number of units.
    quantity: int
    #: What it costs, in the currency's smallest unit: the price of all units, or the shop's total.
    amount: int
    #: ISO 4217.
    currency: str
    #: When the hold expires or has expired.
    expires_at: datetime
    #: Rises with every transition.
    version: int
    #: The provider's id of the payment, if there was one.
    payment: str | None = None
    #: When its units were taken first.
    created_at: datetime | None = None
    #: The cart that it is a line of, which alone changes it; null if there is none.
    cart: str | None = None
    #: The buyer. Only for admins.
    buyer: str | None = None


@dataclass(frozen=True)
class NewOrder:
    """An order to be placed. The same value is always the same order: create it once."""

    #: The item.
    item: str
    #: Number of units that the order asks for.
    quantity: int = 1
    #: Store it before you send the request, if the order must survive a crash of your process.
    key: str = field(default_factory=random_key)
    #: The total of the shop in the currency's smallest unit, with shipping, tax and other goods:
    #: only a payment of this amount pays the order. Default: quantity times price. A buyer states
    #: no less.
    amount: int | None = None

    def __post_init__(self) -> None:
        checks.text("item", self.item)
        checks.whole("quantity", self.quantity)
        checks.key(self.key)
        checks.if_stated(checks.whole, "amount", self.amount)

    def body(self) -> dict[str, object]:
        stated = {
            "quantity": self.quantity,
            "amount": self.amount,
        }
        return {name: value for name, value in stated.items() if value is not None}


@dataclass(frozen=True)
class BuyerOrder:
    """An order of a batch."""

    #: The buyer: what `sub` is in a buyer's token.
    buyer: str
    #: Number of units that the order asks for.
    quantity: int
    #: Identifies the order among the buyer's orders, as `Idempotency-Key` does: 1 to 255 visible
    #: ASCII characters.
    key: str
    #: The total of the shop, which may be less than quantity times price. Default: that.
    amount: int | None = None

    def __post_init__(self) -> None:
        checks.text("buyer", self.buyer)
        checks.whole("quantity", self.quantity)
        checks.key(self.key)
        checks.if_stated(checks.whole, "amount", self.amount)


class BuyerOrderOptions(TypedDict):
    """What an `OrderBatcher` takes besides the buyer, the quantity and the key."""

    #: The total of the shop, which may be less than quantity times price. Default: that.
    amount: NotRequired[int | None]


@dataclass(frozen=True)
class Payment(PaymentChecks):
    """A payment that the provider reports."""

    #: The provider's id of the payment, the same in a repeat: 1 to 255 visible ASCII characters.
    payment: str
    #: The order that was paid: the order of the path, which the signature does not cover.
    order: str
    #: Amount paid in the currency's smallest unit: the `amount` of the order. Required if it has
    #: one.
    amount: int | None = None
    #: The currency that it was paid in (ISO 4217, three capital letters): that of the order.
    #: Default: it is not checked.
    currency: str | None = None


@dataclass(frozen=True)
class Cart(HasUnits):
    """A cart."""

    #: The cart's id.
    id: str
    #: The cart's state.
    state: str
    #: Its orders, as they were listed.
    lines: list[CartLine]
    #: What it costs, in the currency's smallest unit: the price of all lines, or the shop's total.
    amount: int
    #: ISO 4217.
    currency: str
    #: When the holds expire; while it is `placing`, when placing it fails.
    expires_at: datetime
    #: `unchecked`: a payment of any amount pays the cart, and `amount` is what was paid once it is.
    #: Absent: only a payment of `amount` pays it.
    amount_check: str | None = None
    #: Why it is `failed`.
    code: str | None = None
    #: The item because of which it is `failed`.
    item: str | None = None
    #: The provider's id of the payment, if there was one.
    payment: str | None = None


@dataclass(frozen=True)
class CartLine:
    """A line of a cart."""

    #: The item.
    item: str
    #: Id of the line's order, which the cart alone changes.
    order: str
    #: Number of units.
    quantity: int


@dataclass(frozen=True)
class CartPayment(PaymentChecks):
    """A payment of a cart that the provider reports."""

    #: The provider's id of the payment, the same in a repeat: 1 to 255 visible ASCII characters.
    payment: str
    #: The cart that was paid: the cart of the path, which the signature does not cover.
    cart: str
    #: Amount paid in the currency's smallest unit: the `amount` of the cart, or any if it is
    #: `unchecked`. Required unless the cart costs nothing.
    amount: int | None = None
    #: The currency that it was paid in (ISO 4217, three capital letters): that of the cart.
    #: Default: it is not checked.
    currency: str | None = None


@dataclass(frozen=True)
class Item:
    """An item and its counts."""

    #: The item's id.
    id: str
    #: The title that buyers see.
    title: str
    #: The item's state.
    state: str
    #: Units that exist.
    stock: int
    #: Units that can be sold.
    available: int
    #: Units of orders that wait for payment.
    held: int
    #: Units of paid orders.
    confirmed: int
    #: Units of orders that have ended, on their way back.
    returning: int
    #: Whether no unit is available.
    sold_out: bool
    #: The price of one unit in the currency's smallest unit, for orders to come.
    price: int
    #: ISO 4217.
    currency: str
    #: Seconds for which an order holds its units.
    hold_seconds: int
    #: Seconds up to which the hold of an order can be extended.
    max_hold_seconds: int
    #: When an order is acknowledged: `recorded`, `accepted` or `replicated`.
    durability: str
    #: Units that one buyer may hold; null means no limit.
    limit_per_buyer: int | None = None
    #: The first moment at which it sells.
    opens_at: datetime | None = None
    #: The first moment at which it does not sell any more.
    closes_at: datetime | None = None
    #: Units that one order may ask for; null means no limit.
    max_per_order: int | None = None
    #: The next units that will be added; null: none.
    next_wave: NextWave | None = None
    #: The item's segments. Only for admins.
    segments: list[Segment] | None = None
    #: All waves, earliest first, those that were added included. Only for admins.
    waves: list[Wave] | None = None
    #: Units of open withdrawals, which `stock` still counts. Only for admins.
    withdrawing: int | None = None
    #: The version for conditional changes, from the header `ETag`.
    version: int | None = None
    #: Whether a change is recorded and not complete yet (202): a reconciler will complete it.
    pending: bool = False


@dataclass(frozen=True)
class Items:
    """Several items."""

    #: The items, in the order of the request.
    data: list[Item]
    #: Names that no item has.
    unknown: list[str]
    #: Items whose units could not be read now. The others are shown all the same.
    unavailable: list[str]


@dataclass(frozen=True)
class ListedItem:
    """An item in a list. Its counts are those of the ledger, which may lag behind Redis."""

    #: The item's id.
    id: str
    #: The title that buyers see.
    title: str
    #: The item's state.
    state: str
    #: Units that exist.
    stock: int
    #: Units that no recorded order has.
    available: int
    #: Units of orders that wait for payment.
    held: int
    #: Units of paid orders.
    confirmed: int
    #: Units of orders that have ended, on their way back.
    returning: int
    #: The price of one unit in the currency's smallest unit, for orders to come.
    price: int
    #: ISO 4217.
    currency: str
    #: Seconds for which an order holds its units.
    hold_seconds: int
    #: When an order is acknowledged: `recorded`, `accepted` or `replicated`.
    durability: str
    #: Number of segments.
    segment_count: int
    #: Rises with every change of the item. `If-Match` takes it.
    version: int
    #: Units that one buyer may hold; null means no limit.
    limit_per_buyer: int | None = None
    #: The first moment at which it sells.
    opens_at: datetime | None = None
    #: The first moment at which it does not sell any more.
    closes_at: datetime | None = None


class NextWave(TypedDict):
    """Units that will be added."""

    #: When they are added.
    at: str
    #: Number of units.
    units: int


class Wave(TypedDict):
    """A wave of an item."""

    #: When its units are added.
    at: str
    #: Number of units.
    units: int
    #: Whether they were added.
    added: bool


class Segment(TypedDict):
    """A segment and its counts."""

    #: Number of the segment.
    segment: int
    #: Units that belong to it.
    allocated: int
    #: Units that can be sold.
    available: int
    #: Units of orders that wait for payment.
    held: int
    #: Units of paid orders.
    confirmed: int
    #: Units of orders that have ended, on their way back.
    returning: int
    #: Pending spillovers of orders whose home is this segment.
    spillovers: int
    #: Outbox entries that are not trimmed, including the anchor.
    outbox: int


class Audit(TypedDict):
    """The conservation invariant of an item."""

    #: The item.
    item: str
    #: Units that exist.
    stock: int
    #: Free units in Redis.
    available: int
    #: Units of orders that wait for payment, by the ledger.
    held: int
    #: Units of paid orders.
    confirmed: int
    #: Units of orders that have ended, on their way back.
    returning: int
    #: Units on their way from one segment to another, into the stock, or out of it.
    in_transit: int
    #: Units that were taken in Redis and are on their way to the ledger.
    in_flight: int
    #: Units that the invariant does not explain, summed over the segments without sign. Must be 0.
    drift: int
    #: Units by which the orders differ from the counters of their rows, summed over the segments
    #: without sign; drift includes them. Must be 0. By the full audit that `orders_checked` tells
    #: of.
    miscounted: int
    #: Units promised beyond the stock. Must be 0. By the counters of the segments, and by the
    #: orders as of the full audit that `orders_checked` tells of.
    oversold: int
    #: Orders that the ledger refused to cover. Their buyers received `sold_out`.
    rejected_orders: int
    #: Paid orders without units, whose money must be returned.
    refund_due_orders: int
    #: `true` if drift and oversold are 0.
    ok: bool
    #: What is known of the orders themselves: when a full audit has read all of them, and what it
    #: found.
    orders_checked: OrdersChecked
    #: The segments.
    segments: list[AuditedSegment]
    #: When the item was archived: this is its final audit. Later refunds are not in it.
    archived_at: NotRequired[str]
    #: When the last order of the archived item was dropped: the ledger has this audit alone.
    dropped_at: NotRequired[str]


class AuditedSegment(TypedDict):
    """The conservation invariant of a segment."""

    #: Number of the segment.
    segment: int
    #: Units that belong to it.
    allocated: int
    #: Free units in Redis; null if the segment does not exist there.
    available: int | None
    #: Free units at the checkpoint.
    available_at_checkpoint: int
    #: Units of orders that wait for payment, at the checkpoint.
    held: int
    #: Units of paid orders.
    confirmed: int
    #: Units of orders that have ended, on their way back.
    returning: int
    #: Units that were taken after the checkpoint.
    in_flight: int
    #: The last outbox entry that the ledger has recorded.
    checkpoint: str | None
    #: The last outbox entry.
    last: str | None
    #: Units in Redis beyond those of the invariant; negative if Redis has fewer. Must be 0.
    drift: int
    #: The anomaly in words, if there is one.
    finding: NotRequired[str]


class OrdersChecked(TypedDict):
    """What the last full audits have found when they compared all orders of the item with the
    counters.
    """

    #: When the last good one began: all orders agreed with the counters. Null: there was none yet.
    at: str | None
    #: `true` if the counters are those that all orders add up to, and no later audit has found a
    #: fault: nothing has changed since that audit, or whatever has was compared, too. `false`:
    #: units were ordered, paid for or returned since.
    current: bool
    #: The fault that the last full audit has found, until a later one finds none.
    fault: NotRequired[OrdersFault]


class OrdersFault(TypedDict):
    """What a full audit has found wrong with the orders of an item."""

    #: When it was found.
    at: str
    #: Units by which the orders differed from the counters.
    miscounted: int
    #: Units promised beyond the stock.
    oversold: int


@dataclass(frozen=True)
class Erased:
    """Result of an erasure."""

    #: Orders that this request has erased the name from.
    erased: int
    #: Orders that keep the name until their items are archived. Repeat the request then.
    kept: int


@dataclass(frozen=True)
class RefundDue:
    """Money that must be returned."""

    #: Names the row: the order's id, or `journal-` and the number of the journal entry.
    id: str
    #: Why it must be returned.
    reason: str
    #: The order that was paid.
    order: str
    #: The item of the order.
    item: str
    #: The order's state. For an unmatched payment and a failed refund: when that was reported.
    state: str
    #: ISO 4217.
    currency: str
    #: An idempotency key for the provider's refund, always the same for this row: with it, a repeat
    #: of the refund returns the money once. A refund that has failed has another one than before.
    idempotency_key: str
    #: The buyer; null for an unmatched payment and a failed refund.
    buyer: str | None = None
    #: Number of units; null for an unmatched payment and a failed refund.
    quantity: int | None = None
    #: The provider's id of the payment.
    payment: str | None = None
    #: The amount that is due, in the currency's smallest unit; null if the report had none. Of a
    #: line of a cart that is `refund_due`: its share of the cart's `amount`.
    amount: int | None = None
    #: When an unmatched payment or a failed refund was reported first; null for an order.
    reported_at: datetime | None = None
    #: The cart that the order is a line of, or that was paid; null if there is none.
    cart: str | None = None


@dataclass(frozen=True)
class JournalEntry:
    """An entry of an item's journal: who has done what to the item or its orders."""

    #: The entry's number, which only rises.
    id: int
    #: When the change was made.
    at: datetime
    #: Who made the change: the name of an admin, or `reconciler`, `payment`, `cli:ACCOUNT`, ...
    actor: str
    #: The action, for example `create`, `cancel` or `repair`.
    action: str
    #: The values before the change.
    before: dict[str, Any]
    #: The values after the change.
    after: dict[str, Any]
    #: The fencing token under which the change was made, if there was one.
    token: int | None = None


@dataclass(frozen=True)
class ServiceJournalEntry:
    """An entry of the service journal: what an admin has done that belongs to no item."""

    #: The entry's number, which only rises.
    id: int
    #: When it was done.
    at: datetime
    #: Who did it.
    actor: str
    #: The action, for example `create_webhook`.
    action: str
    #: The values before.
    before: dict[str, Any]
    #: The values after.
    after: dict[str, Any]
    #: What it was done to: the id of a webhook.
    subject: str | None = None


@dataclass(frozen=True)
class Event(EventParts):
    """The envelope of an event. The fields are those of CloudEvents 1.0."""

    #: Identifies the event: a repeat has the same. It is also the cursor behind the event.
    id: str
    #: `stockade.` and the kind.
    type: str
    #: When it happened.
    time: datetime
    #: The item; `test` in a test of a webhook.
    subject: str | None = None
    #: `orders`, the ids of the orders that it happened to, and properties of the kind.
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EventPage:
    """A page of events."""

    #: The events, in order. Empty: there are none yet.
    data: list[Event]
    #: The cursor behind them: the `after` of the next request, also of an empty page.
    next: str | None = None


class RegisteredWebhook(TypedDict):
    """A webhook."""

    #: Its id.
    id: str
    #: Where events are sent. Without the scope `webhooks:write` only the scheme and the host,
    #: because the rest may hold a secret.
    url: str
    #: The kinds of events that are sent; empty: all.
    kinds: list[str]
    #: Failed attempts in a row.
    failures: int
    #: When the first of them failed.
    failing_since: str | None
    #: When the next attempt is due.
    next_attempt_at: str | None
    #: Why the last attempt failed.
    last_error: str | None
    #: Since when nothing is sent, because attempts failed for three days.
    disabled_at: str | None
    #: When it was created.
    created_at: NotRequired[str]
    #: The cursor of the last event that was delivered, or that is of another kind.
    cursor: NotRequired[str]
    #: The secret that signs its messages. Only in the answer to its creation.
    secret: NotRequired[str]


class WebhookTest(TypedDict):
    """Result of a test."""

    #: Whether the receiver has accepted the event.
    delivered: bool
    #: The receiver's status, if it has accepted.
    status: int | None
    #: Why it was not delivered.
    error: str | None
