"""A purchase: the shop's cart becomes a cart at Stockade, and Stockade's webhooks end it.

A checkout is written to the database before the first request leaves, and its id is the key of its
cart. So a crash of the shop or of Stockade at any moment is followed by the same request with the
same key, and never by a second order.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time

from stockade import (
    Buyer,
    Cart,
    Client,
    Error,
    Event,
    NewCart,
    NoLongerHeld,
    OutcomeUnknown,
    Refused,
    RetryPolicy,
    mint_buyer,
)

from .catalogue import PAYMENT_PAGE_SECONDS, PRODUCTS
from .database import Database
from .settings import Settings

#: A page waits so long for Stockade. `settle` goes on in the background.
PATIENCE = RetryPolicy(deadline=3, pause=0.05, pause_max=0.5)
#: A token is used at once, and is worth little if it leaks.
TOKEN_SECONDS = 60
#: A request that was lost may still take units for so long.
LOST_SECONDS = 10

#: What a cart at Stockade means for its checkout, in the order of its life.
STATES = {
    "held": "held",
    "expired": "released",
    "cancelled": "released",
    "confirmed": "paid",
    "refund_due": "refund_due",
    "refunded": "refunded",
}
IN_TURN = list(STATES.values())
#: What tells the shop that a cart has moved, or that its hold ends later.
EVENTS = [f"cart.{state}" for state in STATES if state != "held"] + ["cart.extended"]


class Checkouts:
    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._secret = database, settings.jwt_secret
        self._client = Client(settings.url, retry=PATIENCE, attempt_timeout=2)
        #: When the answers of these checkouts were lost. Before this process began, any may have been.
        self._lost: dict[str, float] = {}
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

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
        """Gets the units of all lines, or of none. One thread at a time is enough for a checkout."""
        with self._lock:
            if checkout in self._under_way:
                return
            self._under_way.add(checkout)
        try:
            self._place(checkout)
        finally:
            with self._lock:
                self._under_way.remove(checkout)

    def _place(self, checkout: str) -> None:
        row = self._database.one(
            "SELECT * FROM checkouts WHERE id = ? AND state = 'placing'", checkout
        )
        if row is None:
            return
        lines = self._database.all("SELECT * FROM lines WHERE checkout = ?", checkout)
        # Rule 1: the key is in the database, so every attempt is the same cart.
        cart = NewCart([(line["item"], line["quantity"]) for line in lines], key=checkout)
        try:
            placed = self._buyer(row["buyer"]).place_cart(cart).cart
        except Refused as error:
            if not error.settles_key and (error.is_final or self._lost_lately(checkout)):
                raise  # An earlier request may have placed the cart: a later attempt goes on.
            self._refuse(checkout, error)
        except OutcomeUnknown:
            self._lost[checkout] = time.monotonic()
            raise
        except NoLongerHeld as error:
            assert error.cart is not None
            self._hold(checkout, error.cart)  # After a long outage the hold may be over already.
        else:
            self._hold(checkout, placed)

    def _buyer(self, buyer: str) -> Buyer:
        """The login has proved who the buyer is; the token tells it to Stockade."""
        return self._client.buyer(mint_buyer(self._secret, buyer, lifetime=TOKEN_SECONDS))

    def _lost_lately(self, checkout: str) -> bool:
        """Whether a request that was lost may still take units, perhaps one of a shop that crashed."""
        lost = self._lost.get(checkout, self._began)
        return time.monotonic() - lost <= LOST_SECONDS

    def _refuse(self, checkout: str, error: Refused) -> None:
        self._database.run(
            "UPDATE checkouts SET state = 'refused', reason = ? WHERE id = ?",
            error.problem.code,
            checkout,
        )

    def _hold(self, checkout: str, cart: Cart) -> None:
        with self._database.transaction() as sql:
            held = sql.execute(
                "UPDATE checkouts SET state = 'held', stockade_cart = ?, expires_at = ? "
                "WHERE id = ? AND state = 'placing'",
                [cart.id, cart.expires_at.isoformat(), checkout],
            )
            if held.rowcount:  # Otherwise another thread was faster, with the same cart.
                _move(sql, cart.id, cart.state)

    def settle(self) -> None:
        """Goes on with checkouts whose outcome is unknown, also those of a shop that crashed."""
        for row in self._database.all("SELECT id FROM checkouts WHERE state = 'placing'"):
            try:
                self.place(row["id"])
            except Error as error:
                # Rule 2: an unknown outcome is no refusal.
                logging.warning("checkout %s: %s", row["id"], error)

    def extend(self, checkout: str, buyer: str) -> None:
        """Has the hold outlive the payment page."""
        row = self._database.one("SELECT stockade_cart FROM checkouts WHERE id = ?", checkout)
        if row is not None:
            self._buyer(buyer).extend_cart(row["stockade_cart"], PAYMENT_PAGE_SECONDS)

    def name_session(self, checkout: str, buyer: str, session: str) -> None:
        """Tells in which session the buyer pays: when it expires, the units are free at once."""
        row = self._database.one("SELECT stockade_cart FROM checkouts WHERE id = ?", checkout)
        if row is not None:
            self._buyer(buyer).extend_cart(row["stockade_cart"], session=session)

    def ask(self) -> None:
        """Reads carts whose payment is on its way, for buyers who look at the page.

        A webhook is faster. But the one of a Stockade that was killed waits until its lease ends.
        """
        for row in self._database.all(
            "SELECT checkouts.stockade_cart AS id, checkouts.buyer FROM checkouts "
            "JOIN stripe_sessions ON stripe_sessions.checkout = checkouts.id "
            "WHERE checkouts.state = 'held' AND stripe_sessions.state = 'paid'"
        ):
            try:
                cart = self._buyer(row["buyer"]).cart(row["id"])
            except Error as error:
                logging.warning("cart %s: %s", row["id"], error)
                continue
            with self._database.transaction() as sql:
                _move(sql, cart.id, cart.state)

    def to_refund(self) -> list[sqlite3.Row]:
        """Carts whose money goes back: they were paid after their hold had ended."""
        return self._database.all(
            "SELECT stockade_cart AS cart, "
            "(SELECT sum(amount) FROM lines WHERE checkout = checkouts.id) AS amount "
            "FROM checkouts WHERE state = 'refund_due'"
        )

    def handle(self, event: Event) -> None:
        """Applies a webhook, once: the id and what it changes are one transaction."""
        with self._database.transaction() as sql:
            inserted = sql.execute(
                "INSERT OR IGNORE INTO handled_webhooks (id) VALUES (?)", [event.id]
            )
            if not inserted.rowcount or event.kind not in EVENTS:
                return
            cart = event.data["cart"]
            if event.kind == "cart.extended":
                sql.execute(
                    "UPDATE checkouts SET expires_at = ? WHERE stockade_cart = ?",
                    [event.data["expires_at"], cart],
                )
            else:
                _move(sql, cart, event.kind.removeprefix("cart."))


def _move(sql: sqlite3.Connection, cart: str, state: str) -> None:
    """Notes the state of a cart at Stockade. An old one changes nothing: `ask` overtakes webhooks."""
    row = sql.execute("SELECT * FROM checkouts WHERE stockade_cart = ?", [cart]).fetchone()
    if row is None:
        return  # Another program sells at this Stockade too.
    result = STATES[state]
    if IN_TURN.index(result) <= IN_TURN.index(row["state"]):
        return
    sql.execute("UPDATE checkouts SET state = ? WHERE id = ?", [result, row["id"]])
    if result == "paid":
        sql.execute("INSERT OR IGNORE INTO orders (checkout) VALUES (?)", [row["id"]])
