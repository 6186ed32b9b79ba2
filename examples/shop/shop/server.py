"""The shop's pages and forms, and the endpoint for Stockade's webhooks."""

from __future__ import annotations

import secrets
import time
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stockade import Client, Error, InvalidSignature, Item, RetryPolicy, Webhook

from . import pages
from .catalogue import PRODUCTS
from .checkout import Checkouts
from .database import Database
from .settings import Settings
from .stripe import Stripe

STYLE = Path(__file__).with_name("style.css").read_bytes()
#: Seconds for which a page shows the same stock, so that a crowd of visitors costs one request.
STOCK_AGE = 0.5
POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'"
BODY_BYTES_MAX = 1 << 20
SESSION_SECONDS = 8 * 3600


class Shop(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], database: Database, settings: Settings) -> None:
        super().__init__(address, Handler)
        self.url = f"http://{self.server_address[0]!s}:{self.server_port}"
        self.database, self.settings = database, settings
        self.checkouts = Checkouts(database, settings)
        self.stripe = Stripe(database, settings)
        self.webhook: Webhook | None = None
        self._client = Client(settings.url, retry=RetryPolicy.never(), attempt_timeout=1)
        self._stock: tuple[float, dict[str, Item | None]] = (0.0, {})

    def stock(self) -> dict[str, Item | None]:
        """What is left. While Stockade does not answer, the pages show what they last knew."""
        age, known = self._stock
        if time.monotonic() - age > STOCK_AGE:
            known = {item: self._left(item) or known.get(item) for item in PRODUCTS}
            self._stock = (time.monotonic(), known)
        return known

    def _left(self, item: str) -> Item | None:
        try:
            return self._client.item(item)
        except Error:
            return None


class Handler(BaseHTTPRequestHandler):
    server: Shop
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urlsplit(self.path).path.strip("/").split("/")
        buyer = self._buyer()
        match path:
            case [""]:
                self._page(pages.catalogue(self.server.stock(), buyer))
            case ["style.css"]:
                self._answer(200, STYLE, "text/css")
            case ["login"]:
                self._page(pages.login())
            case ["stripe", session]:
                self._show_stripe(session)
            case _ if buyer is None:
                self._lead("/login")
            case ["cart"]:
                rows = self._all("SELECT * FROM cart_lines WHERE buyer = ?", buyer)
                self._page(pages.cart(rows, secrets.token_hex(16), buyer))
            case ["checkouts"]:
                sql = "SELECT * FROM checkouts WHERE buyer = ? ORDER BY created_at DESC"
                self._page(pages.checkouts(self._all(sql, buyer), buyer))
            case ["checkouts", checkout]:
                self._show_checkout(checkout, buyer)
            case _:
                self._missing()

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            return self._answer(413, b"too large", "text/plain")
        body = self.rfile.read(length)
        path = self.path.strip("/").split("/")
        if path == ["stockade", "webhook"]:
            return self._receive(body)
        # A form of another site changes nothing.
        if self.headers.get("Origin") != f"http://{self.headers.get('Host')}":
            return self._answer(403, b"this form is of another site", "text/plain")
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        buyer = self._buyer()
        match path:
            case ["login"]:
                self._log_in(form.get("buyer", ""))
            case ["stripe", session]:
                self._pay(session)
            case _ if buyer is None:
                self._lead("/login")
            case ["cart"] if form.get("item") in PRODUCTS:
                self._add_to_cart(buyer, form["item"])
            case ["checkouts"]:
                self._order(form.get("checkout", ""), buyer)
            case ["checkouts", checkout, "pay"]:
                self._begin_payment(checkout, buyer)
            case _:
                self._missing()

    # --- the buyer ---

    def _buyer(self) -> str | None:
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("session")
        sql = "SELECT buyer FROM sessions WHERE id = ?"
        row = self.server.database.one(sql, cookie.value) if cookie else None
        return str(row["buyer"]) if row else None

    def _log_in(self, buyer: str) -> None:
        """Begins a session. The buyer's token never leaves the shop: `Checkouts` mints it."""
        if not 1 <= len(buyer) <= 64 or not buyer.replace("-", "").replace("_", "").isalnum():
            return self._page(pages.login())
        session = secrets.token_urlsafe(24)
        self.server.database.run("INSERT INTO sessions VALUES (?, ?)", session, buyer)
        cookie = f"session={session}; HttpOnly; SameSite=Lax; Path=/; Max-Age={SESSION_SECONDS}"
        self._lead("/", {"Set-Cookie": cookie})

    def _add_to_cart(self, buyer: str, item: str) -> None:
        self.server.database.run(
            "INSERT INTO cart_lines VALUES (?, ?, 1) "
            "ON CONFLICT (buyer, item) DO UPDATE SET quantity = quantity + 1",
            buyer,
            item,
        )
        self._lead("/cart")

    # --- the purchase ---

    def _order(self, checkout: str, buyer: str) -> None:
        if len(checkout) != 32 or not checkout.isalnum():
            return self._missing()
        self.server.checkouts.begin(checkout, buyer)
        try:
            self.server.checkouts.place(checkout)
        except Error as error:
            # The page says so and reloads itself; the background goes on with the same keys.
            self.log_message("checkout %s: %s", checkout, error)
        self._lead(f"/checkouts/{checkout}")

    def _show_checkout(self, checkout: str, buyer: str) -> None:
        row = self._checkout(checkout, buyer)
        if row is None:
            return self._missing()
        lines = self._all("SELECT * FROM lines WHERE checkout = ?", checkout)
        number = self.server.database.one("SELECT number FROM orders WHERE checkout = ?", checkout)
        sql = "SELECT 1 FROM stripe_sessions WHERE checkout = ? AND state = 'paid'"
        waits = self.server.database.one(sql, checkout) is not None
        self._page(pages.checkout(row, lines, number["number"] if number else None, waits))

    def _begin_payment(self, checkout: str, buyer: str) -> None:
        row = self._checkout(checkout, buyer)
        if row is None or row["state"] != "held":
            return self._lead(f"/checkouts/{checkout}")
        try:
            self.server.checkouts.extend(checkout, buyer)
            session = self.server.stripe.create_session(checkout, f"/checkouts/{checkout}")
            self.server.checkouts.name_session(checkout, buyer, session)
        except Error as error:
            # The buyer clicks again, and gets the same session. Nothing is paid yet.
            self.log_message("checkout %s: %s", checkout, error)
            return self._lead(f"/checkouts/{checkout}")
        self._lead(f"/stripe/{session}")

    def _show_stripe(self, session: str) -> None:
        row = self.server.database.one("SELECT * FROM stripe_sessions WHERE id = ?", session)
        if row is None:
            return self._missing()
        lines = self._all("SELECT * FROM lines WHERE checkout = ?", row["checkout"])
        self._page(pages.stripe(row, lines))

    def _pay(self, session: str) -> None:
        row = self.server.database.one("SELECT * FROM stripe_sessions WHERE id = ?", session)
        if row is None:
            return self._missing()
        self.server.stripe.pay(session)
        self._lead(row["return_to"])

    # --- Stockade's webhooks ---

    def _receive(self, body: bytes) -> None:
        """Rule 2: verify the raw body before it is parsed, and handle each event once."""
        if self.server.webhook is None:
            return self._answer(503, b"not ready", "text/plain")
        try:
            event = self.server.webhook.verify(dict(self.headers.items()), body)
        except (InvalidSignature, Error, ValueError) as error:
            return self._answer(400, str(error).encode(), "text/plain")
        self.server.checkouts.handle(event)
        self._answer(204, b"", "text/plain")

    # --- answers ---

    def _checkout(self, checkout: str, buyer: str) -> Any:
        sql = "SELECT * FROM checkouts WHERE id = ? AND buyer = ?"
        return self.server.database.one(sql, checkout, buyer)

    def _all(self, sql: str, *values: object) -> list[Any]:
        return self.server.database.all(sql, *values)

    def _page(self, html: str, status: int = 200) -> None:
        self._answer(status, html.encode(), "text/html; charset=utf-8")

    def _missing(self) -> None:
        self._page(pages.message("Not found", "There is no such page.", self._buyer()), 404)

    def _lead(self, location: str, headers: dict[str, str] | None = None) -> None:
        self._answer(303, b"", "text/plain", {"Location": location, **(headers or {})})

    def _answer(
        self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        fixed = {
            "Content-Type": kind,
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-store",
        }
        for name, value in {**fixed, **(headers or {})}.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass
