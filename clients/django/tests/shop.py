"""A shop that notes what it was told."""

from __future__ import annotations

from typing import ClassVar

from django.http import HttpRequest

from stockade_django.models import Checkout
from stockade_django.shop import Shop, ShopItem


class TestShop(Shop):
    told: ClassVar[list[tuple[str, str]]] = []
    stock: ClassVar[list[ShopItem]] = []

    def refund(self, checkout: Checkout) -> None:
        self.told.append(("refund", checkout.payment))

    def confirmed(self, checkout: Checkout) -> None:
        self.told.append(("confirmed", checkout.order_number))

    def cancelled(self, checkout: Checkout) -> None:
        self.told.append(("cancelled", checkout.order_number))

    def released(self, checkout: Checkout) -> None:
        self.told.append(("released", checkout.basket))

    def items(self) -> list[ShopItem]:
        return list(self.stock)

    def placed_url(self, request: HttpRequest, checkout: Checkout) -> str:
        return "/thanks/"

    def held_url(self, request: HttpRequest, checkout: Checkout) -> str:
        return "/preview/"

    def ended_url(self, request: HttpRequest, checkout: Checkout | None) -> str:
        return "/basket/"
