"""The Python client of Stockade's HTTP API. It needs the standard library only.

Three kinds of callers share a `Client`: a `Buyer` places, shows and cancels orders, a
`PaymentProvider` reports payments, and an `Admin` manages items and reads events. An `OrderBatcher`
places the orders of many buyers, and a `Webhook` verifies what Stockade sends.

    client = Client("http://127.0.0.1:8080")
    buyer = client.buyer(mint_buyer(secret, "ann", lifetime=3600))
    placed = buyer.place(NewOrder("maotai", 1))
    print(placed.order.id, placed.order.state)

Rule 1: the same key until the outcome is known. A `NewOrder` or a `NewCart` contains its key:
create it once, store `order.key`, and place that same value again. Rule 2: `OutcomeUnknown` is never
a refusal; only `Refused` is, and after an unknown outcome only one with `settles_key`. Rule 3:
verify before you trust: look at `placed.recorded`, and at the signature of a webhook. A key whose
order has ended is used up: `NoLongerHeld`.
"""

__version__ = "0.1.0"

from .batcher import OrderBatcher
from .carts import NewCart, PlacedCart
from .client import Admin, Buyer, Client, PaymentProvider
from .errors import Contract, Error, InvalidInput, NoLongerHeld, OutcomeUnknown, Problem, Refused
from .models import (
    BuyerOrder,
    Cart,
    CartLine,
    CartPayment,
    Erased,
    Event,
    EventPage,
    Item,
    Items,
    JournalEntry,
    ListedItem,
    ListedOrder,
    NewOrder,
    Order,
    Payment,
    RefundDue,
    ServiceJournalEntry,
)
from .orders import Placed
from .retry import RetryPolicy
from .signatures import InvalidSignature, Webhook, mint_buyer, sign_payment

__all__ = [
    "Admin",
    "Buyer",
    "BuyerOrder",
    "Cart",
    "CartLine",
    "CartPayment",
    "Client",
    "Contract",
    "Erased",
    "Error",
    "Event",
    "EventPage",
    "InvalidInput",
    "InvalidSignature",
    "Item",
    "Items",
    "JournalEntry",
    "ListedItem",
    "ListedOrder",
    "NewCart",
    "NewOrder",
    "NoLongerHeld",
    "Order",
    "OrderBatcher",
    "OutcomeUnknown",
    "Payment",
    "PaymentProvider",
    "Placed",
    "PlacedCart",
    "Problem",
    "RefundDue",
    "Refused",
    "RetryPolicy",
    "ServiceJournalEntry",
    "Webhook",
    "__version__",
    "mint_buyer",
    "sign_payment",
]
