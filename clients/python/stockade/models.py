"""What is sent and what comes back. Fields that a later service adds are ignored."""

from __future__ import annotations

import uuid
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from . import checks
from .errors import Contract, NoLongerHeld
from .transport import Response

T = TypeVar("T")

#: Where an order is in its life.
ORDER_STATES = ("held", "confirmed", "cancelled", "expired", "refund_due", "refunded", "rejected")


def read(model: type[T], body: Any, status: int = 200, **more: Any) -> T:
    """Reads a JSON object as `model`; what is missing violates the contract."""
    if not isinstance(body, dict):
        raise Contract(status, f"expected an object, found {type(body).__name__}")
    types = get_type_hints(model)
    values = dict(more)
    for known in fields(model):  # type: ignore[arg-type]
        if known.name in values:
            continue
        if known.name in body:
            values[known.name] = _value(types[known.name], body[known.name], known.name, status)
        elif known.default is MISSING and known.default_factory is MISSING:
            raise Contract(status, f"{known.name} is missing")
    return model(**values)


def _value(expected: Any, value: Any, name: str, status: int) -> Any:
    try:
        if value is not None and expected in (datetime, datetime | None):
            return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Contract(status, f"{name}: {value!r} is no time") from None
    if not isinstance(value, _classes(expected)):
        raise Contract(status, f"{name}: {value!r} is no {expected}")
    return value


def _classes(expected: Any) -> tuple[type, ...]:
    """The classes of a type, without what they contain."""
    options = get_args(expected) if isinstance(expected, UnionType) else (expected,)
    return tuple(get_origin(option) or option for option in options)


def read_placed(order: NewOrder, response: Response) -> Placed:
    """Reads the response to `order`, and verifies that it is about this order and holds units."""
    found = read(Order, response.json(), response.status)
    if (found.item, found.quantity) != (order.item, order.quantity):
        raise Contract(
            response.status,
            f"expected an order of {order.quantity} x {order.item}, "
            f"found one of {found.quantity} x {found.item}",
        )
    if not found.has_units:
        raise NoLongerHeld(order=found)
    if order.amount not in (None, found.amount):
        raise Contract(
            response.status, f"expected an order of {order.amount}, found one of {found.amount}"
        )
    return Placed(found, response.replayed, response.status == 201)


@dataclass(frozen=True)
class NewOrder:
    """An order to be placed. The same value is always the same order: create it once."""

    item: str
    quantity: int = 1
    #: Store it before you send the request, if the order must survive a crash of your process.
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: The shop's total with shipping and tax, which payments are checked against. Without one the
    #: order costs the price of its units, and it never costs less.
    amount: int | None = None

    def __post_init__(self) -> None:
        checks.text("item", self.item)
        checks.whole("quantity", self.quantity)
        checks.key(self.key)
        checks.amount(self.amount)


@dataclass(frozen=True)
class Order:
    """An order, as the service reports it. Amounts are in the currency's smallest unit."""

    id: str
    item: str
    quantity: int
    state: str
    #: The price of one unit when the order was placed.
    price: int
    #: What it costs: the price of all units, or the shop's total.
    amount: int
    currency: str
    #: When a held order expires.
    expires_at: datetime
    #: Rises with every transition.
    version: int
    created_at: datetime | None = None
    #: The provider's id of the payment.
    payment: str | None = None
    #: Only admins see it.
    buyer: str | None = None

    @property
    def has_units(self) -> bool:
        """Whether the units belong to the buyer: it is `held` or `confirmed`."""
        return self.state in ("held", "confirmed")


@dataclass(frozen=True)
class Placed:
    """An order that was placed, now or by an earlier request with the same key, and holds units."""

    #: The order as it is now: `held`, or after a replay perhaps `confirmed`.
    order: Order
    #: Whether an earlier request with this key had placed it.
    replayed: bool
    #: Whether the ledger has the order (201). Otherwise (202) only Redis has it.
    recorded: bool


@dataclass(frozen=True)
class ListedOrder:
    """An order in a list."""

    id: str
    item: str
    state: str
    quantity: int
    amount: int
    currency: str
    expires_at: datetime
    version: int
    payment: str | None = None
    created_at: datetime | None = None
    #: Only admins see it.
    buyer: str | None = None
    #: The cart that it is a line of, which alone changes it.
    cart: str | None = None


@dataclass(frozen=True)
class Item:
    """An item and the numbers of its units."""

    id: str
    title: str
    state: str
    stock: int
    available: int
    held: int
    confirmed: int
    returning: int
    sold_out: bool
    #: The price of one unit in the currency's smallest unit.
    price: int
    currency: str
    hold_seconds: int
    #: Seconds up to which a hold can be extended.
    max_hold_seconds: int
    durability: str
    limit_per_buyer: int | None = None
    max_per_order: int | None = None
    opens_at: datetime | None = None
    closes_at: datetime | None = None
    #: The next units that will be added: `at` and `units`.
    next_wave: dict[str, Any] | None = None
    #: Units of open withdrawals, which `stock` still counts. Only admins see it, and what follows.
    withdrawing: int | None = None
    waves: list[Any] | None = None
    segments: list[Any] | None = None
    #: The version for conditional changes, from the header `ETag`.
    version: int | None = None
    #: Whether a change is recorded and not complete yet (202): a reconciler will complete it.
    pending: bool = False


@dataclass(frozen=True)
class Items:
    """Several items, as the public sees them."""

    #: In the order of the request.
    data: list[Item]
    #: Names that no item has.
    unknown: list[str]
    #: Items whose units could not be read now.
    unavailable: list[str]


@dataclass(frozen=True)
class ListedItem:
    """An item in a list. Its numbers are those that the ledger has recorded."""

    id: str
    title: str
    state: str
    stock: int
    available: int
    held: int
    confirmed: int
    returning: int
    price: int
    currency: str
    hold_seconds: int
    durability: str
    segment_count: int
    version: int
    limit_per_buyer: int | None = None
    opens_at: datetime | None = None
    closes_at: datetime | None = None


@dataclass(frozen=True)
class Erased:
    """What became of a buyer's name."""

    #: Orders that lost the name now. Those of an earlier call are not counted again.
    erased: int
    #: Orders that keep it until their items are archived.
    kept: int


@dataclass(frozen=True)
class Payment:
    """A payment of an order. The provider chooses the id, and every repeat has the same one."""

    payment: str
    order: str
    #: What was paid. An order with a price needs it.
    amount: int | None = None
    #: What it was paid in (ISO 4217): that of the order.
    currency: str | None = None

    def __post_init__(self) -> None:
        checks.text("payment", self.payment)
        if self.amount is not None:
            checks.whole("amount", self.amount)


@dataclass(frozen=True)
class RefundDue:
    """Money that must be returned."""

    id: str
    reason: str
    order: str
    item: str
    state: str
    currency: str
    #: The key for the provider's refund: with it, a repeat returns the money once.
    idempotency_key: str
    buyer: str | None = None
    quantity: int | None = None
    payment: str | None = None
    amount: int | None = None
    reported_at: datetime | None = None
    #: The cart that the order is a line of, or that was paid.
    cart: str | None = None


@dataclass(frozen=True)
class JournalEntry:
    """An entry of an item's journal: who has done what to the item or its orders."""

    id: int
    at: datetime
    #: The name of an admin, or `reconciler`, `payment`, `cli:ACCOUNT`, ...
    actor: str
    #: Such as `create`, `refund`, `cancel`.
    action: str
    before: dict[str, Any]
    after: dict[str, Any]
    #: The fencing token under which it was done, if there was one.
    token: int | None = None


@dataclass(frozen=True)
class ServiceJournalEntry:
    """What an admin has done that belongs to no item, such as a webhook or an erasure."""

    id: int
    at: datetime
    actor: str
    #: Such as `create_webhook`.
    action: str
    before: dict[str, Any]
    after: dict[str, Any]
    #: The id of a webhook.
    subject: str | None = None


@dataclass(frozen=True)
class Event:
    """An event: what happened to the orders of an item, or to the item. See docs/events.md."""

    #: A repeat has the same. It is a cursor too.
    id: str
    #: Such as `stockade.order.held`.
    type: str
    time: datetime
    #: The item. A test event has none.
    subject: str | None = None
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The type without `stockade.`."""
        return self.type.removeprefix("stockade.")

    @property
    def orders(self) -> list[str]:
        """The orders that it happened to."""
        return list(self.data.get("orders", []))

    @property
    def cart(self) -> str | None:
        """The cart that it happened to: `data.cart` of a `cart.` event."""
        cart = self.data.get("cart")
        return cart if isinstance(cart, str) else None


@dataclass(frozen=True)
class EventPage:
    """Events, and the cursor of those that follow. Store it with what you did about them."""

    data: list[Event]
    next: str | None
