"""Oscar's last checkout page, with Stockade: hold, charge, commit, report."""

from __future__ import annotations

import logging
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from oscar.apps.checkout import views

from oscarshop.card import CardPayment
from oscarshop.hot.models import HotItem
from oscarshop.hot.shop import reason
from stockade_django import checkouts
from stockade_django.buyers import buyer_of
from stockade_django.models import Checkout
from stockade_django.views import SESSION_BASKET, is_under_way, latest

logger = logging.getLogger("oscarshop.checkout")


def hot_lines(basket: Any) -> list[tuple[str, int]]:
    lines = list(basket.all_lines())
    records = [line.stockrecord_id for line in lines]
    hot = HotItem.objects.filter(stockrecord__in=records)
    items = dict(hot.values_list("stockrecord_id", "item"))
    return [
        (items[line.stockrecord_id], line.quantity)
        for line in lines
        if line.stockrecord_id in items
    ]


class PaymentDetailsView(CardPayment, views.PaymentDetailsView):
    checkout: Checkout | None = None

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if self._waits(request):
            return redirect("stockade:wait")
        if not request.basket.is_empty and request.session.get(SESSION_BASKET) != request.basket.pk:
            request.session[SESSION_BASKET] = request.basket.pk
        return super().dispatch(request, *args, **kwargs)

    def _waits(self, request: HttpRequest) -> bool:
        """A second click finds the basket frozen. Oscar would say that it is empty, and forget it.

        So `request.basket` is not touched while the checkout is under way.
        """
        last = latest(request)
        if not is_under_way(last):
            return False
        has_order = last is not None and bool(last.order_number)
        return not has_order or request.basket.is_empty

    def submit(self, user: Any, basket: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """Holds the units before oscar freezes the basket and takes the payment."""
        try:
            self.checkout = checkouts.reserve(basket.pk, buyer_of(self.request), hot_lines(basket))
            if self.checkout:
                checkouts.charging(self.checkout)
        except (checkouts.Busy, checkouts.Unknown, checkouts.Lost):
            return redirect("stockade:wait")
        except checkouts.NotHeld as error:
            messages.error(self.request, reason(error.code))
            return redirect("basket:summary")
        return super().submit(user, basket, *args, **kwargs)

    def handle_payment(self, order_number: object, total: Any, **kwargs: Any) -> None:
        if self.checkout is None:
            super().handle_payment(order_number, total, **kwargs)
        else:
            self.take_payment(self.checkout.payment, total)

    def place_order(self, order_number: object, user: Any, basket: Any, **kwargs: Any) -> Any:
        names = {"order_number": order_number, "user": user, "basket": basket}
        if self.checkout is None:
            return super().place_order(**names, **kwargs)
        with transaction.atomic():
            checkouts.place(self.checkout, order_number)
            order = super().place_order(**names, **kwargs)
            basket.submit()
        return order

    def handle_successful_order(self, order: Any) -> HttpResponse:
        if self.checkout is None:
            return super().handle_successful_order(order)
        checkouts.report(self.checkout)
        try:
            return super().handle_successful_order(order)
        except Exception:
            # The order exists, whatever its e-mail says: oscar would tell the buyer that it failed.
            logger.exception("order %s: a step after its placement has failed", order.number)
            return redirect("stockade:wait")

    def restore_frozen_basket(self) -> None:
        """Oscar calls it when the payment or the placement has failed."""
        if self.checkout is not None:
            checkouts.abandon(self.checkout)
        super().restore_frozen_basket()
