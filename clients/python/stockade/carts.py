"""Carts: orders of several items that a buyer gets all or none of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from . import checks
from .errors import Contract, InvalidInput, NoLongerHeld
from .models import Cart
from .parts import random_key
from .reading import read
from .transport import Response

#: The amount of a cart whose payments the shop checks itself.
UNCHECKED = "unchecked"


@dataclass(frozen=True)
class NewCart:
    """A cart to be placed. The same value is always the same cart: create it once."""

    #: Pairs of an item and a quantity, at most 20.
    lines: Iterable[tuple[str, int]]
    #: Store it before you send the request, if the cart must survive a crash of your process.
    key: str = field(default_factory=random_key)
    #: The shop's total with shipping, tax and vouchers, which payments are checked against. Without
    #: one it is the price of the lines. Only an admin states less, or `unchecked`: any payment
    #: pays it.
    amount: int | Literal["unchecked"] | None = None

    def __post_init__(self) -> None:
        checks.key(self.key)
        if self.amount != UNCHECKED:
            checks.if_stated(checks.whole, "amount", self.amount)
        try:
            lines = tuple((item, units) for item, units in self.lines)
        except (TypeError, ValueError):
            raise InvalidInput("lines", "pairs of an item and a quantity") from None
        for item, units in lines:
            checks.text("item", item)
            checks.whole("quantity", units)
        object.__setattr__(self, "lines", lines)

    def body(self) -> dict[str, object]:
        lines = [{"item": item, "quantity": units} for item, units in self.lines]
        return {"lines": lines} if self.amount is None else {"lines": lines, "amount": self.amount}


@dataclass(frozen=True)
class PlacedCart:
    """A cart that was placed, now or by an earlier request with the same key, and holds units."""

    #: The cart as it is now: `held`, or after a replay perhaps `confirmed`.
    cart: Cart
    #: Whether an earlier request with this key had placed it.
    replayed: bool


def read_cart(cart: str, response: Response) -> Cart:
    """Reads a cart, and verifies that it is this one."""
    found = read(Cart, response.json(), response.status)
    if found.id != cart:
        raise Contract(response.status, f"expected the cart {cart}, found {found.id}")
    return found


def read_placed_cart(cart: NewCart, response: Response) -> PlacedCart:
    """Reads the response to `cart`, and verifies that it is about this cart and holds units."""
    found = read(Cart, response.json(), response.status)
    wanted: Counter[str] = Counter()
    for item, units in cart.lines:
        wanted[item] += units
    got = {line.item: line.quantity for line in found.lines}
    if got != wanted or len(got) != len(found.lines):
        raise Contract(response.status, f"expected a cart of {dict(wanted)}, found one of {got}")
    if not found.has_units:
        raise NoLongerHeld(cart=found)
    costs = found.amount_check or found.amount
    if cart.amount not in (None, costs):
        raise Contract(response.status, f"expected a cart of {cart.amount}, found one of {costs}")
    return PlacedCart(found, response.replayed)
