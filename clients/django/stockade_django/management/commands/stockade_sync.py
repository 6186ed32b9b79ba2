from typing import Any

from django.core.management.base import BaseCommand

from stockade_django.stock import sync


class Command(BaseCommand):
    help = "Makes Stockade sell the stock of the shop's own table"

    def handle(self, *args: Any, **options: Any) -> None:
        for item, done in sync().items():
            self.stdout.write(f"{item}: {done}")
