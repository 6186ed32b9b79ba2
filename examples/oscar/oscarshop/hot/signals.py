"""The staff cancels an order in oscar's dashboard: its money and its units go back."""

from typing import Any

from django.dispatch import receiver
from oscar.apps.order.signals import order_status_changed

from stockade_django import checkouts


@receiver(order_status_changed)
def on_status(order: Any, new_status: str, **kwargs: Any) -> None:
    if new_status == "Cancelled":
        checkouts.cancel_placed(order.number, "cancelled by the staff")
