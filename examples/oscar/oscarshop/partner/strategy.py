"""The stock of hot goods is shown from Stockade, that of the others from oscar's own table."""

from __future__ import annotations

from typing import Any

from oscar.apps.partner import strategy
from oscar.apps.partner.availability import StockRequired

from oscarshop.hot.models import HotItem
from stockade_django import availability
from stockade_django.views import SESSION_BASKET


class Default(strategy.Default):
    def availability_policy(self, product: Any, stockrecord: Any) -> Any:
        own = super().availability_policy(product, stockrecord)
        hot = HotItem.of(stockrecord)
        units = availability.available(hot.item) if hot else None
        if hot is None or units is None:
            return own
        return StockRequired(units + self._held(hot.item))

    def _held(self, item: str) -> int:
        # `request.basket` has this strategy, so its lines must not be looked at here.
        basket = self.request.session.get(SESSION_BASKET) if self.request else None
        return availability.held_by(basket, item) if basket is not None else 0


class Selector(strategy.Selector):
    def strategy(self, request: Any = None, user: Any = None, **kwargs: Any) -> Default:
        return Default(request)
