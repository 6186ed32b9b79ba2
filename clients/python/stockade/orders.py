"""Orders to be placed, and what was placed."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import Contract, NoLongerHeld
from .models import NewOrder, Order
from .reading import read
from .transport import Response


@dataclass(frozen=True)
class Placed:
    """An order that was placed, now or by an earlier request with the same key, and holds units."""

    #: The order as it is now: `held`, or after a replay perhaps `confirmed`.
    order: Order
    #: Whether an earlier request with this key had placed it.
    replayed: bool
    #: Whether the ledger has the order (201). Otherwise (202) only Redis has it.
    recorded: bool


def read_order(order: str, response: Response) -> Order:
    """Reads an order, and verifies that it is this one."""
    found = read(Order, response.json(), response.status)
    if found.id != order:
        raise Contract(response.status, f"expected the order {order}, found {found.id}")
    return found


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
