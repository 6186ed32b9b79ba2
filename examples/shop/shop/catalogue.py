"""What the shop sells. Stockade has the units; titles, texts and pictures are the shop's."""

from __future__ import annotations

from dataclasses import dataclass

from stockade import Admin

CURRENCY = "USD"
#: A session of Stripe Checkout lives so long at least, and the hold must outlive it.
PAYMENT_PAGE_SECONDS = 1800


@dataclass(frozen=True)
class Product:
    item: str
    title: str
    text: str
    #: In cents.
    price: int
    stock: int


PRODUCTS = {
    product.item: product
    for product in (
        Product("shop-vase", "Porcelain vase", "Blue and white, fired in Jingdezhen.", 14_900, 50),
        Product("shop-bowl", "Celadon bowl", "Holds soup for one.", 3_900, 200),
        Product("shop-lamp", "The last lamp", "There is one.", 29_900, 1),
    )
}


def create_items(admin: Admin) -> None:
    """Creates the items at Stockade. A repeat changes nothing."""
    for product in PRODUCTS.values():
        admin.create_item(
            product.item,
            product.stock,
            title=product.title,
            price=product.price,
            currency=CURRENCY,
            limit_per_buyer=2,
            max_hold_seconds=PAYMENT_PAGE_SECONDS,
        )


def money(cents: int) -> str:
    return f"{CURRENCY} {cents // 100:,}.{cents % 100:02}"
