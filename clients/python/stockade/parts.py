"""What some models have besides the fields of the description."""

from __future__ import annotations

import uuid
from typing import Any, Protocol

from . import checks


class _HasState(Protocol):
    @property
    def state(self) -> str: ...


class _HasData(Protocol):
    @property
    def type(self) -> str: ...

    @property
    def data(self) -> dict[str, Any]: ...


class _IsPayment(Protocol):
    @property
    def payment(self) -> str: ...

    @property
    def amount(self) -> int | None: ...


def random_key() -> str:
    """A key that no other order or cart has."""
    return uuid.uuid4().hex


class HasUnits:
    """An order or a cart."""

    @property
    def has_units(self: _HasState) -> bool:
        """Whether its units belong to the buyer: it is `held` or `confirmed`."""
        return self.state in ("held", "confirmed")


class EventParts:
    """An event, which belongs to orders, to a cart or to an item."""

    @property
    def kind(self: _HasData) -> str:
        """The type without `stockade.`."""
        return self.type.removeprefix("stockade.")

    @property
    def orders(self: _HasData) -> list[str]:
        """The orders that it happened to."""
        return list(self.data.get("orders", []))

    @property
    def cart(self: _HasData) -> str | None:
        """The cart that it happened to: `data.cart` of a `cart.` event."""
        cart = self.data.get("cart")
        return cart if isinstance(cart, str) else None


class PaymentChecks:
    """A payment, which is checked when it is created."""

    def __post_init__(self: _IsPayment) -> None:
        checks.text("payment", self.payment)
        checks.if_stated(checks.whole, "amount", self.amount)
