"""What Stockade's checkouts need of oscar."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import messages
from django.http import HttpRequest
from django.urls import reverse
from oscar.core.loading import get_model

from oscarshop import card
from stockade_django.models import Checkout
from stockade_django.shop import Shop, ShopItem

from .models import HotItem

Basket, Order = get_model("basket", "Basket"), get_model("order", "Order")

REASONS = {
    "sold_out": "It was sold out a moment ago.",
    "buyer_limit_reached": "You cannot buy more of it.",
    "not_open": "The sale is not open.",
}


def reason(code: str) -> str:
    return f"{REASONS.get(code, 'Your order could not be placed.')} Nothing was charged."


class OscarShop(Shop):
    def refund(self, checkout: Checkout) -> None:
        card.refund(checkout.payment)

    def confirmed(self, checkout: Checkout) -> None:
        order = Order.objects.get(number=checkout.order_number)
        if order.status == "Pending":
            order.set_status("Paid")

    def cancelled(self, checkout: Checkout) -> None:
        order = Order.objects.get(number=checkout.order_number)
        for line in order.lines.select_related("stockrecord").order_by("stockrecord_id"):
            if line.stockrecord:
                line.stockrecord.cancel_allocation(line.quantity)
        order.set_status("Cancelled")

    def released(self, checkout: Checkout) -> None:
        frozen = Basket.objects.filter(pk=checkout.basket, status=Basket.FROZEN)
        frozen.update(status=Basket.OPEN)

    def items(self) -> Iterator[ShopItem]:
        for hot in HotItem.objects.select_related("stockrecord__product"):
            record = hot.stockrecord
            options = {
                "title": record.product.get_title()[:200],
                "currency": record.price_currency,
                "hold_seconds": hot.hold_seconds,
            }
            if hot.limit_per_buyer:
                options["limit_per_buyer"] = hot.limit_per_buyer
            # It has no price at Stockade: the order's own transaction binds the charge to it.
            yield ShopItem(hot.item, record.net_stock_level, options)

    def placed_url(self, request: HttpRequest, checkout: Checkout) -> str:
        order = Order.objects.get(number=checkout.order_number)
        request.session["checkout_order_id"] = order.pk
        return reverse("checkout:thank-you")

    def held_url(self, request: HttpRequest, checkout: Checkout) -> str:
        messages.success(request, "Your items are reserved. Please place the order now.")
        return reverse("checkout:preview")

    def ended_url(self, request: HttpRequest, checkout: Checkout | None) -> str:
        if checkout and checkout.order_number:
            messages.error(request, "Your order was cancelled. Your money goes back to you.")
        elif checkout:
            messages.error(request, reason(checkout.reason))
        return reverse("basket:summary")
