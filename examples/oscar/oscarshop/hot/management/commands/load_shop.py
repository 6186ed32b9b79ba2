"""Two products for each kind: hot ones, which Stockade sells, and normal ones."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from oscar.core.loading import get_model

from oscarshop.hot.models import HotItem

Country = get_model("address", "Country")
Category = get_model("catalogue", "Category")
Product, ProductClass = get_model("catalogue", "Product"), get_model("catalogue", "ProductClass")
Partner, StockRecord = get_model("partner", "Partner"), get_model("partner", "StockRecord")


def add_product(title: str, units: int, price: str) -> Any:
    """A product with one stock record. A second call changes nothing."""
    kind, _ = ProductClass.objects.get_or_create(name="goods", defaults={"track_stock": True})
    partner, _ = Partner.objects.get_or_create(name="warehouse")
    product, _ = Product.objects.get_or_create(title=title, defaults={"product_class": kind})
    values = {"product": product, "price": price, "num_in_stock": units}
    record, _ = StockRecord.objects.get_or_create(
        partner=partner, partner_sku=title, defaults=values
    )
    return record


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--hot", nargs="*", default=["console", "sneakers"], metavar="TITLE")
        parser.add_argument("--normal", nargs="*", default=["socks", "mug"], metavar="TITLE")
        parser.add_argument("--units", type=int, default=10, help="of each hot product")

    def handle(self, *args: Any, **options: Any) -> None:
        names = {"name": "Germany", "printable_name": "Germany", "is_shipping_country": True}
        Country.objects.get_or_create(iso_3166_1_a2="DE", defaults=names)
        for title in options["hot"]:
            record = add_product(title, options["units"], "19.99")
            HotItem.objects.get_or_create(stockrecord=record, defaults={"item": title})
        for title in options["normal"]:
            add_product(title, 1000, "4.95")
