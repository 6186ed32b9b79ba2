"""Rushes on one variant of the shop, and what they have left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from stockade import Admin, Client

from guest import Guest
from servers import Processor, Shop, Stockade, eventually

UNITS, GUESTS = 10, 40
#: What a charge takes. In a rush it takes until a crowd charges, so that its fault is no matter of
#: chance: of the 24 threads of the shop so many have checked the stock before one allocates some. Where
#: units are held first, no more than these can charge. The other scenarios need no crowd.
CROWD, CROWD_SECONDS, CHARGE_SECONDS = 20, 8, 0.3
#: Guests who fill their baskets at the same time: the rush is the last click, not this.
_SHOPPING = 6

ORDERS = """
    SELECT count(DISTINCT o.id) FROM order_order o JOIN order_line l ON l.order_id = o.id
    WHERE l.title = %s AND o.status <> 'Cancelled'
"""
ALLOCATED = "SELECT coalesce(num_allocated, 0) FROM partner_stockrecord WHERE partner_sku = %s"

CANCEL = """
from oscar.apps.order.models import Order
for order in Order.objects.filter(lines__title="cancelled")[:2]:
    order.set_status("Cancelled")
"""


@dataclass
class Count:
    """What one rush has left of its goods."""

    #: Orders that are not cancelled.
    orders: int
    #: Cards that were charged and have their money not back.
    charged: int
    #: Units that Stockade has confirmed, and that it holds.
    confirmed: int
    held: int
    #: Units that oscar has allocated.
    allocated: int
    #: Charges whose money was returned.
    returned: int

    def agrees(self) -> bool:
        """Paid = charged = confirmed = allocated, and nothing is held."""
        numbers = {self.orders, self.charged, self.confirmed, self.allocated}
        return len(numbers) == 1 and self.held == 0 and self.orders <= UNITS


class Trial:
    """A variant with its shop, its database and, maybe, Stockade."""

    def __init__(
        self, database: str, shop: Shop, processor: Processor, stockade: Stockade | None = None
    ) -> None:
        self.database, self.shop, self.processor, self.stockade = (
            database,
            shop,
            processor,
            stockade,
        )
        #: What happened when in each rush.
        self.rushes: list[dict[str, Any]] = []
        self.admin: Admin | None = None
        if stockade:
            self.admin = Client(stockade.url).admin(stockade.settings["STOCKADE_ADMIN_TOKEN"])

    def sql(self, query: str, *values: Any) -> Any:
        with closing(psycopg.connect(self.database)) as connection:
            return connection.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> Any:
        return self.sql(query, *values)[0][0]

    def guests(self, names: str, number: int, titles: list[str]) -> list[Guest]:
        """Guests who are about to click `Place order`."""
        query = "SELECT id FROM catalogue_product WHERE title = %s"
        products = {title: self.one(query, title) for title in titles}
        guests = [Guest(self.shop.port, f"{names}-{place}") for place in range(number)]
        # The first look at a product makes its picture, and two at once would collide.
        guests[0].shop(products, looks=True)
        with ThreadPoolExecutor(_SHOPPING) as pool:
            list(pool.map(lambda guest: guest.shop(products), guests[1:]))
        return guests

    def at_once(
        self, guests: list[Guest], act: Callable[[Guest], Any], times: int = 1
    ) -> list[Any]:
        """All of them act at the same moment, each so many times."""
        barrier = threading.Barrier(len(guests) * times)

        def run(guest: Guest) -> Any:
            barrier.wait()
            return act(guest)

        with ThreadPoolExecutor(len(guests) * times) as pool:
            return list(pool.map(run, guests * times))

    def rush(self, title: str) -> Count:
        guests = self.guests(title, GUESTS, [title])
        before = len(self.processor.charges())
        self.processor.answer_after(CROWD_SECONDS, UNITS if self.stockade else CROWD)
        began = time.time()

        def buy(guest: Guest) -> dict[str, Any]:
            ordered = guest.buy()
            return {"at": time.time() - began, "ordered": ordered}

        answers = self.at_once(guests, buy)
        charges = self.processor.charges()[before:]
        answers.sort(key=lambda answer: answer["at"])
        self.rushes.append(
            {
                "units": UNITS,
                "charges": sorted(charge["at"] - began for charge in charges if "at" in charge),
                "answers": answers,
            }
        )
        return self.count(title, before)

    def settled(self) -> bool:
        """Whether no checkout waits for the job or for its buyer."""
        ended = ["confirmed", "refused", "released", "refunded"]
        waiting = "SELECT count(*) FROM stockade_checkout WHERE state <> ALL (%s)"
        return bool(self.one(waiting, ended) == 0)

    def count(self, title: str, charges_before: int) -> Count:
        if self.stockade:
            eventually("the checkouts to settle", self.settled)
        charges = self.processor.charges()[charges_before:]
        item = self.admin.item(title) if self.admin else None
        return Count(
            orders=self.one(ORDERS, title),
            charged=sum(charge["state"] == "charged" for charge in charges),
            confirmed=item.confirmed if item else 0,
            held=item.held if item else 0,
            allocated=self.one(ALLOCATED, title),
            returned=sum(charge["state"] == "returned" for charge in charges),
        )


def audits(trial: Trial, titles: list[str]) -> list[str]:
    """What the audits of the items object to."""
    assert trial.admin
    found = {title: trial.admin.audit(title, full=True) for title in titles}
    return [
        f"the audit of {title}: {audit}"
        for title, audit in found.items()
        if (audit["drift"], audit["oversold"]) != (0, 0)
    ]


@dataclass
class Scenario:
    """One way in which a checkout goes wrong, and how many orders it must end with."""

    name: str
    orders: int
    run: Callable[[Trial], Any]


def declined(trial: Trial) -> None:
    """Each card is declined, twice, and the third try is with another one."""
    guests = trial.guests("declined", 6, ["declined"])
    trial.at_once(guests, lambda guest: [guest.click("declined"), guest.click("declined")])
    trial.at_once(guests, Guest.buy)


def double_clicks(trial: Trial) -> None:
    """Three clicks of each guest at the same moment."""
    trial.at_once(trial.guests("double", 6, ["double"]), Guest.buy, times=3)


def mixed(trial: Trial) -> None:
    """Hot and normal goods in one basket, and more guests than hot units."""
    trial.at_once(trial.guests("mixed", 15, ["mixed", "socks"]), Guest.buy)


def staff_cancels(trial: Trial) -> None:
    """Six guests buy, and the staff cancels two of the orders."""
    trial.at_once(trial.guests("cancelled", 6, ["cancelled"]), Guest.buy)
    trial.shop.manage("shell", "--command", CANCEL)


def kill_service(trial: Trial) -> None:
    """Kills Stockade once the first card is charged, while the others hold, pay and report."""
    assert trial.stockade
    service, before = trial.stockade, len(trial.processor.charges())

    def kill() -> None:
        eventually("a charge", lambda: len(trial.processor.charges()) > before)
        service.kill()
        # The shop must live without it for longer than one attempt of its client.
        time.sleep(3)
        service.start()

    guests = trial.guests("kill-service", GUESTS, ["kill-service"])
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        trial.at_once(guests, lambda guest: guest.buy(clicks=3))
        killed.result()


def kill_worker(point: str, folder: Path) -> Callable[[Trial], None]:
    """Kills the worker that comes first to the point, with whatever its other threads do."""

    def run(trial: Trial) -> None:
        title = f"kill-{point}"
        guests = trial.guests(title, 8, [title])
        (folder / point).touch()
        trial.at_once(guests, lambda guest: guest.buy(clicks=5))
        if (folder / point).exists():
            raise SystemExit(f"no worker was killed at {point}")

    return run


def show(name: str, count: Count) -> None:
    numbers = ", ".join(f"{key} {value}" for key, value in asdict(count).items())
    print(f"  {name}: {numbers}", flush=True)
