"""The shop's record of its checkouts. What the shop sells and to whom is the shop's own."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.utils import timezone

from . import conf


class State(models.TextChoices):
    """Where a checkout is. Each state is committed before the request that follows it leaves."""

    PLACING = "placing", "Stockade may have been asked for the units"
    HELD = "held", "Stockade holds the units"
    CHARGING = "charging", "the card processor may have been asked for the money"
    PLACED = "placed", "the order exists; its payment is to be reported"
    CONFIRMED = "confirmed", "Stockade has confirmed the payment"
    REFUSED = "refused", "no unit was held"
    RELEASING = "releasing", "there is no order: units and money are to go back"
    RELEASED = "released", "they went back"
    REFUND_DUE = "refund_due", "the order is to be cancelled, and its money to be returned"
    RETURNING = "returning", "both are done, and Stockade is to note it"
    REFUNDED = "refunded", "Stockade has noted it"


#: The checkout has no order and never gets one: the next attempt of its basket needs a new key.
ENDED = (State.REFUSED, State.RELEASED)
#: Its units are allocated in the shop's own stock.
ALLOCATED = (State.PLACED, State.CONFIRMED, State.REFUND_DUE)
#: `settle` has something to do, once no worker owns it.
OPEN = (
    State.PLACING,
    State.HELD,
    State.CHARGING,
    State.PLACED,
    State.RELEASING,
    State.REFUND_DUE,
    State.RETURNING,
)


class Checkout(models.Model):
    """One attempt of a basket to become an order. Its key at Stockade is made of both."""

    basket = models.CharField(max_length=100)
    attempt = models.PositiveIntegerField()
    #: The name of the buyer at Stockade. It belongs to the key, so a log-in does not change it.
    buyer = models.CharField(max_length=200)
    #: Pairs of an item and a quantity, in the order of the items.
    lines = models.JSONField()
    state = models.CharField(max_length=12, choices=State, default=State.PLACING, db_index=True)
    #: Why it ended: a code of Stockade, or a state of its cart.
    reason = models.CharField(max_length=200, blank=True)
    cart = models.CharField(max_length=64, blank=True, db_index=True)
    #: When the hold ends.
    expires_at = models.DateTimeField(null=True)
    order_number = models.CharField(max_length=128, blank=True, db_index=True)
    #: Fences the worker: only the latest that took the checkout may change it.
    worker = models.CharField(max_length=32, blank=True)
    lease_until = models.DateTimeField(db_index=True)
    #: When a call began whose outcome is not known: it may still take units for some seconds.
    lost_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["basket", "attempt"], name="stockade_checkout_attempt")
        ]

    def __str__(self) -> str:
        return f"{self.key} ({self.state})"

    @property
    def key(self) -> str:
        """The idempotency key of the cart."""
        return f"{conf.get('KEY_PREFIX')}-{self.basket}-{self.attempt}"

    @property
    def payment(self) -> str:
        """The reference of the charge. It is known before the charge, so a job can ask for it."""
        return f"pay-{self.key}"

    @property
    def is_free(self) -> bool:
        """Whether no worker owns it."""
        return self.lease_until <= timezone.now()

    def holds_for(self, seconds: float) -> bool:
        """Whether its units stay held for so long."""
        end: datetime | None = self.expires_at
        return end is not None and end > timezone.now() + timedelta(seconds=seconds)


class HandledEvent(models.Model):
    """An event that was applied. It may be delivered again."""

    id = models.CharField(max_length=64, primary_key=True)
    at = models.DateTimeField(auto_now_add=True)


class WebhookSecret(models.Model):
    """The secret of a webhook, which Stockade tells once."""

    url = models.URLField(unique=True)
    webhook = models.CharField(max_length=64)
    secret = models.CharField(max_length=100)
