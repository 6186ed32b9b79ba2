"""What Stockade's webhooks change. They only hasten what `settle` finds out by itself."""

from __future__ import annotations

from django.db import transaction
from stockade import Event

from . import checkouts
from .models import HandledEvent

#: The kinds that the webhook asks for.
KINDS = ("cart.confirmed", "cart.cancelled", "cart.expired", "cart.refund_due", "cart.refunded")


def handle(event: Event) -> None:
    """Applies an event once: its id and its changes are one transaction."""
    with transaction.atomic():
        _, is_new = HandledEvent.objects.get_or_create(id=event.id)
        if is_new and event.kind in KINDS:
            checkouts.note(event.data["cart"], event.kind.removeprefix("cart."))
