"""A fake Stripe: a payment page, and events that are signed and repeated as Stripe does it.

A real shop replaces this file by Stripe's library, and sets the same metadata. Stockade takes
Stripe's events at `POST /v1/webhooks/stripe`; the shop does not translate them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sqlite3
import time
import urllib.error
import urllib.request

from .catalogue import CURRENCY
from .database import Database
from .settings import Settings


class Stripe:
    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._url = f"{settings.url}/v1/webhooks/stripe"
        self._secret = settings.stripe_secret.encode()

    def create_session(self, checkout: str, return_to: str) -> str:
        """A Checkout session. A repeat for the same checkout returns the same one."""
        self._database.run(
            "INSERT OR IGNORE INTO stripe_sessions VALUES (?, ?, 'open', ?)",
            f"cs_{secrets.token_hex(12)}",
            checkout,
            return_to,
        )
        row = self._database.one("SELECT id FROM stripe_sessions WHERE checkout = ?", checkout)
        assert row is not None
        return str(row["id"])

    def pay(self, session: str) -> None:
        """The buyer has confirmed. The PaymentIntent names the cart at Stockade."""
        with self._database.transaction() as sql:
            changed = sql.execute(
                "UPDATE stripe_sessions SET state = 'paid' WHERE id = ? AND state = 'open'",
                [session],
            )
            if changed.rowcount == 0:
                return
            paid = sql.execute(
                "SELECT stockade_cart AS cart, sum(amount) AS amount FROM checkouts "
                "JOIN lines ON lines.checkout = checkouts.id "
                "JOIN stripe_sessions ON stripe_sessions.checkout = checkouts.id "
                "WHERE stripe_sessions.id = ?",
                [session],
            ).fetchone()
            intent = _intent(paid["cart"], amount_received=paid["amount"], status="succeeded")
            _emit(sql, "payment_intent.succeeded", intent)

    def refund(self, cart: str, amount: int) -> None:
        """Returns the money of a cart. The id of the event is its idempotency key."""
        charge = _intent(cart, amount=amount, refunded=True)
        charge |= {"id": f"ch_{cart}", "payment_intent": f"pi_{cart}"}
        with self._database.transaction() as sql:
            _emit(sql, "charge.refunded", charge, event=f"evt_refund_{cart}")

    def deliver(self) -> None:
        """Sends events that Stockade has not answered with 2xx. The real one does it for 3 days."""
        for event in self._database.all("SELECT * FROM stripe_events WHERE NOT delivered"):
            if self._deliver(event["body"].encode()):
                sql = "UPDATE stripe_events SET delivered = 1 WHERE id = ?"
                self._database.run(sql, event["id"])

    def _deliver(self, body: bytes) -> bool:
        request = urllib.request.Request(self._url, body, {"Stripe-Signature": self._sign(body)})
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _sign(self, body: bytes) -> str:
        now = str(int(time.time()))
        tag = hmac.digest(self._secret, now.encode() + b"." + body, hashlib.sha256)
        return f"t={now},v1={tag.hex()}"


def _intent(cart: str, **fields: object) -> dict[str, object]:
    """The PaymentIntent of a cart. The shop set its metadata when it created the session."""
    metadata = {"stockade_cart": cart}
    return {"id": f"pi_{cart}", "currency": CURRENCY.lower(), "metadata": metadata, **fields}


def _emit(
    sql: sqlite3.Connection, kind: str, thing: dict[str, object], event: str | None = None
) -> None:
    event = event or f"evt_{secrets.token_hex(12)}"
    body = json.dumps({"id": event, "object": "event", "type": kind, "data": {"object": thing}})
    sql.execute("INSERT OR IGNORE INTO stripe_events (id, body) VALUES (?, ?)", [event, body])
