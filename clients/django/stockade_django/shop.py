"""What the shop itself knows: its orders, its stock, its card processor and its pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest

from .models import Checkout


@dataclass(frozen=True)
class ShopItem:
    """An item that is sold through Stockade, as the shop's own table has it."""

    item: str
    #: Units that the shop counts as unsold.
    unsold: int
    #: Further fields of a new item: docs/api.md.
    options: dict[str, Any] = field(default_factory=dict)


class Shop:
    """Subclass it, and name the subclass in `STOCKADE["SHOP"]`. Any method may be called again."""

    def refund(self, checkout: Checkout) -> None:
        """Returns the money of `checkout.payment` if it was charged, and bars a late charge.

        A worker that was stopped may wake up and charge after this. So the processor must refuse
        the reference from now on, as one does that has cancelled the intent of a payment.
        """
        raise NotImplementedError

    def confirmed(self, checkout: Checkout) -> None:
        """Stockade has confirmed the payment. Runs in the transaction that notes it."""

    def cancelled(self, checkout: Checkout) -> None:
        """Cancels the order and its allocations. Runs in the transaction that notes it."""
        raise NotImplementedError

    def released(self, checkout: Checkout) -> None:
        """The attempt has ended without an order. Runs in the transaction that notes it."""

    def items(self) -> Iterable[ShopItem]:
        """What `stockade_sync` makes Stockade sell. Runs in one transaction with its own reads."""
        return ()

    def placed_url(self, request: HttpRequest, checkout: Checkout) -> str:
        """Where the waiting page sends a buyer whose order exists."""
        raise NotImplementedError

    def held_url(self, request: HttpRequest, checkout: Checkout) -> str:
        """Where it sends a buyer whose units are held, to place the order."""
        raise NotImplementedError

    def ended_url(self, request: HttpRequest, checkout: Checkout | None) -> str:
        """Where it sends a buyer whose attempt has ended: `checkout.reason` says why."""
        raise NotImplementedError
