"""A purchase: lines of a cart become orders at Stockade, and Stockade's webhooks end it.

A checkout is written to the database before the first request leaves, and each line has a key that
derives from it. So a crash of the shop or of Stockade at any moment is followed by the same
requests with the same keys, and never by a second order.
"""

from __future__ import annotations

import logging
import sqlite3

from stockade import (
    Buyer,
    Client,
    Error,
    Event,
    NewOrder,
    Order,
    Refused,
    RetryPolicy,
    mint_buyer,
)

from .catalogue import PRODUCTS
from .database import Database
from .settings import Settings

#: A page waits so long for Stockade. `settle` goes on in the background.
PATIENCE = RetryPolicy(deadline=3, pause=0.05, pause_max=0.5)
#: A session of Stripe Checkout lives so long at least.
PAYMENT_PAGE_SECONDS = 1800
#: A token is used at once, and is worth little if it leaks.
TOKEN_SECONDS = 60

#: What tells the shop that an order has moved, and where to.
STATES = {
    "order.confirmed": "confirmed",
    "order.cancelled": "cancelled",
    "order.expired": "expired",
    "order.rejected": "rejected",
    "order.refund_due": "refund_due",
    "order.refunded": "refunded",
}
ENDED = ("cancelled", "expired", "rejected", "refunded")


class Checkouts:
    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._secret = database, settings.jwt_secret
        self._client = Client(settings.url, retry=PATIENCE, attempt_timeout=2)

    def begin(self, checkout: str, buyer: str) -> None:
        """Turns the cart into a checkout. A second click on the same page begins the same one."""
        with self._database.transaction() as sql:
            cart = sql.execute("SELECT * FROM cart_lines WHERE buyer = ?", [buyer]).fetchall()
            known = sql.execute("SELECT 1 FROM checkouts WHERE id = ?", [checkout]).fetchone()
            if not cart or known:
                return
            sql.execute(
                "INSERT INTO checkouts (id, buyer, state) VALUES (?, ?, 'placing')",
                [checkout, buyer],
            )
            for line in cart:
                amount = PRODUCTS[line["item"]].price * line["quantity"]
                sql.execute(
                    "INSERT INTO lines (checkout, item, quantity, amount) VALUES (?, ?, ?, ?)",
                    [checkout, line["item"], line["quantity"], amount],
                )
            sql.execute("DELETE FROM cart_lines WHERE buyer = ?", [buyer])

    def place(self, checkout: str) -> None:
        """Orders every line, or none: if one is refused, the others are cancelled."""
        row = self._database.one(
            "SELECT * FROM checkouts WHERE id = ? AND state = 'placing'", checkout
        )
        if row is None:
            return
        buyer = self._buyer(row["buyer"])
        placed: list[Order] = []
        try:
            for line in self._database.all("SELECT * FROM lines WHERE checkout = ?", checkout):
                # Rule 1: the key is in the database, so every attempt is the same order.
                key = f"{checkout}:{line['item']}"
                placed.append(buyer.place(NewOrder(line["item"], line["quantity"], key)).order)
        except Refused as error:
            if error.problem.status in (401, 429):
                raise  # nothing is decided: a later attempt goes on
            for order in placed:
                # After a crash, the hold of a line may be over.
                if order.state == "held":
                    buyer.cancel(order.id)
            self._refuse(checkout, error)
        else:
            self._hold(checkout, placed)

    def _buyer(self, buyer: str) -> Buyer:
        """The login has proved who the buyer is; the token tells it to Stockade."""
        return self._client.buyer(mint_buyer(self._secret, buyer, lifetime=TOKEN_SECONDS))

    def _refuse(self, checkout: str, error: Refused) -> None:
        self._database.run(
            "UPDATE checkouts SET state = 'refused', reason = ? WHERE id = ?",
            error.problem.code,
            checkout,
        )

    def _hold(self, checkout: str, orders: list[Order]) -> None:
        with self._database.transaction() as sql:
            held = sql.execute(
                "UPDATE checkouts SET state = 'held' WHERE id = ? AND state = 'placing'", [checkout]
            )
            if held.rowcount == 0:
                return  # Another thread was faster, with the same orders.
            for order in orders:
                sql.execute(
                    "UPDATE lines SET stockade_order = ?, expires_at = ? "
                    "WHERE checkout = ? AND item = ?",
                    [order.id, order.expires_at.isoformat(), checkout, order.item],
                )
                # After a long outage the hold may be over already.
                _move(sql, order.id, order.state)

    def settle(self) -> None:
        """Goes on with checkouts whose outcome is unknown, also those of a shop that crashed."""
        for row in self._database.all("SELECT id FROM checkouts WHERE state = 'placing'"):
            try:
                self.place(row["id"])
            except Error as error:
                # Rule 2: an unknown outcome is no refusal.
                logging.warning("checkout %s: %s", row["id"], error)

    def extend(self, checkout: str, buyer: str) -> None:
        """Has the holds outlive the payment page."""
        sql = "SELECT stockade_order AS id FROM lines WHERE checkout = ?"
        for line in self._database.all(sql, checkout):
            self._buyer(buyer).extend_hold(line["id"], PAYMENT_PAGE_SECONDS)

    def ask(self) -> None:
        """Reads orders whose payment is on its way, for buyers who look at the page.

        A webhook is faster. But the one of a Stockade that was killed waits until its lease ends.
        """
        for row in self._database.all(
            "SELECT lines.stockade_order AS id, checkouts.buyer FROM checkouts "
            "JOIN stripe_sessions ON stripe_sessions.checkout = checkouts.id "
            "JOIN lines ON lines.checkout = checkouts.id "
            "WHERE checkouts.state = 'held' AND stripe_sessions.state = 'paid'"
        ):
            try:
                order = self._buyer(row["buyer"]).order(row["id"])
            except Error as error:
                logging.warning("order %s: %s", row["id"], error)
                continue
            with self._database.transaction() as sql:
                _move(sql, order.id, order.state)

    def to_refund(self) -> list[sqlite3.Row]:
        """Lines whose money goes back: all of a checkout, also if only one could not be had."""
        return self._database.all(
            "SELECT lines.* FROM lines JOIN checkouts ON checkouts.id = lines.checkout "
            "WHERE checkouts.state = 'refunded' AND lines.state IN ('refund_due', 'confirmed')"
        )

    def handle(self, event: Event) -> None:
        """Applies a webhook, once: the id and what it changes are one transaction."""
        with self._database.transaction() as sql:
            inserted = sql.execute(
                "INSERT OR IGNORE INTO handled_webhooks (id) VALUES (?)", [event.id]
            )
            if inserted.rowcount and event.kind in STATES:
                for order in event.orders:
                    _move(sql, order, STATES[event.kind])


def _move(sql: sqlite3.Connection, order: str, state: str) -> None:
    """Notes the state of an order at Stockade, and what it means for the checkout."""
    row = sql.execute("SELECT checkout FROM lines WHERE stockade_order = ?", [order]).fetchone()
    if row is None:
        return  # Another program sells at this Stockade too, or `place` has cancelled the order.
    checkout = row["checkout"]
    sql.execute("UPDATE lines SET state = ? WHERE stockade_order = ?", [state, order])
    states = [
        line["state"]
        for line in sql.execute("SELECT state FROM lines WHERE checkout = ?", [checkout])
    ]
    if all(one == "confirmed" for one in states):
        sql.execute("INSERT OR IGNORE INTO orders (checkout) VALUES (?)", [checkout])
        result = "paid"
    elif "refund_due" in states or "refunded" in states:
        result = "refunded"
    elif all(one in ENDED for one in states):
        result = "released"
    else:
        return
    sql.execute("UPDATE checkouts SET state = ? WHERE id = ?", [result, checkout])
