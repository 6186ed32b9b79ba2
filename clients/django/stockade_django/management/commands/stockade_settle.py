import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from stockade_django.settle import settle


class Command(BaseCommand):
    help = "Goes on with the checkouts that a crash has left open"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--loop", type=float, metavar="SECONDS", help="goes on for ever")

    def handle(self, *args: Any, loop: float | None = None, **options: Any) -> None:
        while True:
            moved = settle()
            if moved or not loop:
                self.stdout.write(f"settled {moved}")
            if not loop:
                return
            time.sleep(loop)
