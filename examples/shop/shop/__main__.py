"""Starts the shop: `examples/shop/run [--dir .stockade] [--listen 127.0.0.1:8090]`."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from pathlib import Path

from stockade import Admin, Client, RetryPolicy, Webhook

from .catalogue import create_items
from .checkout import EVENTS
from .database import Database
from .server import Shop
from .settings import Settings

#: Seconds between two looks at what is unfinished.
SETTLE_PAUSE = 0.3
#: Seconds between two questions about carts whose payment is on its way.
ASK_PAUSE = 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples/shop/run", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path(".stockade"), help="folder of `make up`")
    parser.add_argument("--listen", default="127.0.0.1:8090", help="address of the shop")
    arguments = parser.parse_args()
    host, _, port = arguments.listen.rpartition(":")
    settings = Settings.read(arguments.dir)
    database = Database(arguments.dir / "shop.db")
    shop = Shop((host, int(port)), database, settings)
    admin = Client(settings.url, retry=RetryPolicy(deadline=60)).admin(settings.admin_token)
    create_items(admin)
    shop.webhook = webhook(admin, database, f"{shop.url}/stockade/webhook")
    stop = threading.Event()
    # Each goes on with what a crash, of the shop or of Stockade, has left unfinished.
    repeat(stop, SETTLE_PAUSE, shop.checkouts.settle)
    repeat(stop, SETTLE_PAUSE, shop.stripe.deliver)
    repeat(stop, SETTLE_PAUSE, lambda: refund(shop))
    repeat(stop, ASK_PAUSE, shop.checkouts.ask)
    print(f"ready {shop.url}", flush=True)
    try:
        shop.serve_forever()
    except KeyboardInterrupt:
        stop.set()


def repeat(stop: threading.Event, pause: float, work: Callable[[], None]) -> None:
    def run() -> None:
        while not stop.wait(pause):
            work()

    threading.Thread(target=run, daemon=True).start()


def refund(shop: Shop) -> None:
    for row in shop.checkouts.to_refund():
        shop.stripe.refund(row["cart"], row["amount"])


def webhook(admin: Admin, database: Database, url: str) -> Webhook:
    """The webhook of this shop. Its secret is told once, so the shop stores it."""
    known = database.one("SELECT value FROM settings WHERE name = ?", f"secret of {url}")
    if known is not None and any(one["url"] == url for one in admin.webhooks()):
        return Webhook(known["value"])
    for one in admin.webhooks():
        # Of an earlier start that has crashed before it stored the secret.
        if one["url"] == url:
            admin.remove_webhook(one["id"])
    created = admin.create_webhook(url, EVENTS)
    sql = "INSERT OR REPLACE INTO settings VALUES (?, ?)"
    database.run(sql, f"secret of {url}", created["secret"])
    return Webhook(created["secret"])


if __name__ == "__main__":
    main()
