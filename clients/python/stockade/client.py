"""The calls, and how they are repeated while their outcome is unknown."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

from . import checks
from .attempts import Attempts
from .batch import read_results
from .carts import NewCart, PlacedCart, read_cart, read_placed_cart
from .errors import Contract, Error, InvalidInput
from .models import (
    Audit,
    BuyerOrder,
    Cart,
    CartPayment,
    Erased,
    Event,
    EventPage,
    Item,
    Items,
    JournalEntry,
    ListedItem,
    ListedOrder,
    NewOrder,
    Order,
    Payment,
    RefundDue,
    RegisteredWebhook,
    ServiceJournalEntry,
    WebhookTest,
)
from .orders import Placed, read_order, read_placed
from .reading import read
from .retry import LAST_ATTEMPT_SECONDS, RetryPolicy
from .signatures import sign_payment
from .transport import Instance, Response

T = TypeVar("T")

#: Rows of a page, when an iterator reads all of them.
_ROWS = 1000


@dataclass(frozen=True)
class Request:
    """A request, which stays the same however often it is sent: the key is part of it."""

    method: str
    path: str
    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    json: Any = None
    #: Signs the body for each attempt, because the signature contains the time.
    payment_secret: str | None = None
    #: Seconds that the service itself may wait before it answers.
    wait: float = 0.0

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, however often it is sent."""
        return self.method == "GET"

    def parts(self) -> tuple[dict[str, str], bytes | None]:
        headers, body = dict(self.headers), None
        if self.json is not None:
            body = _json(self.json)
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.payment_secret is not None:
            headers["Stockade-Signature"] = sign_payment(self.payment_secret, body or b"")
        return headers, body


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput("body", f"values that JSON has: {error}") from None


class Client:
    """A service, which may have several instances. Threads may share a client."""

    def __init__(
        self, *urls: str, retry: RetryPolicy = RetryPolicy(), attempt_timeout: float = 5.5
    ) -> None:
        """Requests go to the instances at `urls` in turn, so a repeat goes to another one.

        `attempt_timeout` limits one attempt, in seconds. The default is longer than the service
        itself waits for an order (`STOCKADE_ORDER_TIMEOUT_MS`), so its answer arrives.
        """
        if not urls:
            raise InvalidInput("urls", "the address of one instance at least")
        self._all = [Instance(url) for url in urls]
        self._instances = itertools.cycle(self._all)
        self.retry = retry
        self._attempt_timeout = checks.seconds("attempt_timeout", attempt_timeout)

    @property
    def call_timeout(self) -> float:
        """Seconds within which a call ends, besides what the service is asked to wait."""
        return self.retry.call_timeout(self._attempt_timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that no request uses."""
        for instance in self._all:
            instance.close()

    def buyer(self, token: str) -> Buyer:
        """Makes calls as the buyer who owns `token`, a JWT."""
        return Buyer(self, token)

    def admin(self, token: str) -> Admin:
        """Makes calls as the admin who owns `token`."""
        return Admin(self, token)

    def payment_provider(self, secret: str) -> PaymentProvider:
        """Reports payments. `secret` is the service's `STOCKADE_PAYMENT_SECRET`."""
        return PaymentProvider(self, secret)

    def item(self, item: str) -> Item:
        """Shows an item as the public sees it, at most 250 ms old."""
        return self.send(Request("GET", _item_path(item)), _item)

    def items(self, items: Sequence[str]) -> Items:
        """Shows up to 100 items as the public sees them, in one request."""
        if isinstance(items, str):
            raise InvalidInput("items", "a list of names")
        ids = ",".join(_segment("items", item) for item in items)
        return self.send(Request("GET", f"/v1/items:batch?ids={ids}"), partial(_row, Items))

    def send(self, request: Request, read: Callable[[Response], T]) -> T:
        """Sends `request`, and repeats it while the outcome is unknown and the policy allows it.

        Returns what `read` makes of the response. After an attempt that was lost, only that or a
        decision of the service ends the attempts: a proxy may send a success too.
        """
        return self.send_as(request, Attempts(reads=request.reads), read)

    def send_as(self, request: Request, attempts: Attempts, read: Callable[[Response], T]) -> T:
        """`send` with attempts that the caller judges the parts of the response by."""
        deadline = time.monotonic() + self.retry.deadline
        timeout = self._attempt_timeout
        while True:
            attempts.begin()
            try:
                return read(self.send_once(request, timeout))
            except Error as error:
                known = attempts.judge(error)
            pause = self.retry.pause_after(attempts.count, known.retry_after)
            if not known.is_retryable or time.monotonic() + pause > deadline:
                raise known
            time.sleep(pause)
            left = max(deadline - time.monotonic(), LAST_ATTEMPT_SECONDS)
            timeout = min(self._attempt_timeout, left)

    def send_once(self, request: Request, timeout: float | None = None) -> Response:
        """Sends `request` once; only success statuses return."""
        headers, body = request.parts()
        limit = request.wait + (self._attempt_timeout if timeout is None else timeout)
        instance = next(self._instances)
        response = instance.exchange(request.method, request.path, headers, body, limit)
        return response.into_success()


class Buyer:
    """Makes calls as a buyer."""

    def __init__(self, client: Client, token: str) -> None:
        self._client, self._token = client, checks.token(token)

    def place(self, order: NewOrder) -> Placed:
        """Places an order, and repeats the request with the same key while the outcome is unknown.

        A repeat of an order that holds units succeeds too, and returns it as it is now. The order
        of the key may also have ended since: that is `NoLongerHeld`.
        """
        path = _item_path(order.item, "/orders")
        key = {"Idempotency-Key": order.key}
        request = Request("POST", path, self._token, key, order.body())
        return self._client.send(request, partial(read_placed, order))

    def order(self, order: str) -> Order:
        """Reads one of the buyer's orders from the ledger."""
        return self._send(partial(read_order, order), "GET", _order_path(order))

    def cancel(self, order: str) -> Order:
        """Cancels a held order. Its units can be bought again."""
        return self._send(partial(read_order, order), "DELETE", _order_path(order))

    def extend_hold(
        self, order: str, seconds: int | None = None, *, session: str | None = None
    ) -> Order:
        """Has the hold last `seconds` from its creation, or longer if it does already.

        `session` names the checkout session in which the buyer pays from now on. One of the two is
        needed.
        """
        path, body = _order_path(order, "/hold"), _hold(seconds, session)
        return self._send(partial(read_order, order), "POST", path, body)

    def place_cart(self, cart: NewCart) -> PlacedCart:
        """Places a cart, and repeats the request with the same key while the outcome is unknown.

        All lines are held, or none: `error.problem.item` of the `Refused` names the item then. A
        cart of the key that has ended since is `NoLongerHeld`.
        """
        key = {"Idempotency-Key": cart.key}
        request = Request("POST", "/v1/carts", self._token, key, cart.body())
        return self._client.send(request, partial(read_placed_cart, cart))

    def cart(self, cart: str) -> Cart:
        """Reads one of the buyer's carts from the ledger."""
        return self._send(partial(read_cart, cart), "GET", _cart_path(cart))

    def cancel_cart(self, cart: str) -> Cart:
        """Cancels a held cart. The units of all lines can be bought again."""
        return self._send(partial(read_cart, cart), "DELETE", _cart_path(cart))

    def extend_cart(
        self, cart: str, seconds: int | None = None, *, session: str | None = None
    ) -> Cart:
        """Has the holds of all lines last `seconds` from the creation of the first order.

        `session` names the checkout session in which the buyer pays from now on. One of the two is
        needed.
        """
        path, body = _cart_path(cart, "/hold"), _hold(seconds, session)
        return self._send(partial(read_cart, cart), "POST", path, body)

    def orders(self) -> Iterator[ListedOrder]:
        """All recorded orders of the buyer, page by page."""
        return _pages(self._client, "/v1/orders", self._token, ListedOrder)

    def carts(self) -> Iterator[Cart]:
        """All carts of the buyer, page by page."""
        return _pages(self._client, "/v1/carts", self._token, Cart)

    def _send(
        self, read: Callable[[Response], T], method: str, path: str, body: Any = None
    ) -> T:
        return self._client.send(Request(method, path, self._token, json=body), read)


class PaymentProvider:
    """Reports payments to the service, signed with the payment secret."""

    def __init__(self, client: Client, secret: str) -> None:
        self._client, self._secret = client, checks.text("secret", secret)

    def report(self, payment: Payment) -> Order:
        """Reports a payment; returns the order as it is now.

        Check `state`: `refund_due` means that the order had expired and no units were left.
        """
        path = _order_path(payment.order, "/payment")
        return self._client.send(self._report(payment, path), partial(read_order, payment.order))

    def report_cart(self, payment: CartPayment) -> Cart:
        """Reports a payment of a cart; returns the cart as it is now.

        Check `state`: `refund_due` means that the cart had expired and that no units were left for one
        of its lines.
        """
        path = _cart_path(payment.cart, "/payment")
        return self._client.send(self._report(payment, path), partial(read_cart, payment.cart))

    def _report(self, payment: Payment | CartPayment, path: str) -> Request:
        return Request("POST", path, json=_known(asdict(payment)), payment_secret=self._secret)


class Admin:
    """Makes calls as an admin."""

    def __init__(self, client: Client, token: str) -> None:
        self._client, self._token = client, checks.token(token)

    @property
    def retry(self) -> RetryPolicy:
        return self._client.retry

    @property
    def call_timeout(self) -> float:
        return self._client.call_timeout

    def create_item(self, /, item: str, stock: int, **options: Any) -> Item:
        """Creates an item; `options` are the fields of docs/api.md. A repeat changes nothing."""
        return self._send(_item, "POST", "/v1/items", {"id": item, "stock": stock, **options})

    def item(self, item: str) -> Item:
        """Shows an item, uncached, with its version."""
        return self._send(_item, "GET", _item_path(item))

    def items(self) -> Iterator[ListedItem]:
        """All items, page by page."""
        return _pages(self._client, "/v1/items", self._token, ListedItem)

    def set_state(self, item: str, state: str, *, version: int | None = None) -> Item:
        """Opens, pauses or closes an item: `open`, `paused`, `closed`.

        With a `version`, as with the other changes, the item must have it: a change in between is
        `version_mismatch`.
        """
        return self._change("PUT", _item_path(item, "/state"), {"state": state}, version)

    def patch_item(self, /, item: str, *, version: int | None = None, **changes: Any) -> Item:
        """Changes `limit_per_buyer`, `opens_at`, `closes_at` or `waves`; `None` removes one.

        A new `price` is that of orders to come.
        """
        return self._change("PATCH", _item_path(item), changes, version)

    def add_stock(self, item: str, units: int, key: str, *, version: int | None = None) -> Item:
        """Adds units. Calls with the same key are the same change."""
        return self._move(item, {"add": checks.whole("units", units)}, key, version)

    def withdraw_stock(
        self, item: str, units: int, key: str, *, version: int | None = None
    ) -> Item:
        """Withdraws so many units, or as many as are unsold. While they move, it is `pending`.

        Calls with the same key are the same change.
        """
        return self._move(item, {"withdraw": checks.whole("units", units)}, key, version)

    def set_stock(self, item: str, stock: int, version: int) -> Item:
        """Sets the units that exist, held and paid ones included, if the item has this version.

        Units of which buyers were faster stay: `stock` is the result.
        """
        body = {"stock": checks.whole("stock", stock)}
        return self._change("PUT", _item_path(item, "/stock"), body, version)

    def archive_item(self, item: str, *, version: int | None = None) -> Item:
        """Archives a closed item for good. It is `pending` until a reconciler has done it."""
        return self._change("POST", _item_path(item, "/archive"), None, version)

    def drop_item(self, item: str) -> Item:
        """Exports and deletes what the sale of an archived item has left.

        It is `pending` until a reconciler has done it: the `audit` has `dropped_at` then.
        """
        return self._change("DELETE", _item_path(item), None, None)

    def erase_buyer(self, buyer: str) -> Erased:
        """Replaces a buyer's name in the orders at archived items, for good."""
        path = f"/v1/buyers/{_segment('buyer', buyer)}/erase"
        return self._send(partial(_row, Erased), "POST", path)

    def audit(self, item: str, *, full: bool = False) -> Audit:
        """Compares the stock counters of an item with the ledger.

        `orders_checked` says when the counters of the ledger were last compared with the orders themselves.
        With `full` this call compares them: it reads every order of the item, and may take long.
        """
        path = _item_path(item, "/audit?full=true" if full else "/audit")
        return cast(Audit, self._send(Response.object, "GET", path))

    def order(self, order: str) -> Order:
        """Reads any buyer's order from the ledger."""
        return self._send(partial(read_order, order), "GET", _order_path(order))

    def cancel(self, order: str) -> Order:
        """Cancels any buyer's held order."""
        return self._send(partial(read_order, order), "DELETE", _order_path(order))

    def extend_hold(
        self, order: str, seconds: int | None = None, *, session: str | None = None
    ) -> Order:
        """Has the hold last `seconds` from its creation, or longer if it does already.

        `session` names the checkout session in which the buyer pays from now on. One of the two is
        needed.
        """
        path, body = _order_path(order, "/hold"), _hold(seconds, session)
        return self._send(partial(read_order, order), "POST", path, body)

    def refund(self, order: str) -> Order:
        """Notes that the money of an order was returned."""
        return self._send(partial(read_order, order), "POST", _order_path(order, "/refund"))

    def place_cart(self, buyer: str, cart: NewCart) -> PlacedCart:
        """Places a cart for a buyer, whose own request with the same key is a repeat of it.

        It is as `Buyer.place_cart`, and `cart.amount` may be anything: less than the price of the
        lines, 0 or `unchecked`.
        """
        key, body = {"Idempotency-Key": cart.key}, {"buyer": checks.text("buyer", buyer)}
        request = Request("POST", "/v1/carts", self._token, key, {**body, **cart.body()})
        return self._client.send(request, partial(read_placed_cart, cart))

    def cart(self, cart: str) -> Cart:
        """Reads any buyer's cart from the ledger."""
        return self._send(partial(read_cart, cart), "GET", _cart_path(cart))

    def cancel_cart(self, cart: str) -> Cart:
        """Cancels any buyer's held cart. The units of all lines can be bought again."""
        return self._send(partial(read_cart, cart), "DELETE", _cart_path(cart))

    def extend_cart(
        self, cart: str, seconds: int | None = None, *, session: str | None = None
    ) -> Cart:
        """Has the holds of all lines last `seconds` from the creation of the first order.

        `session` names the checkout session in which the buyer pays from now on. One of the two is
        needed.
        """
        path, body = _cart_path(cart, "/hold"), _hold(seconds, session)
        return self._send(partial(read_cart, cart), "POST", path, body)

    def refund_cart(self, cart: str) -> Cart:
        """Notes that the money of a cart was returned."""
        return self._send(partial(read_cart, cart), "POST", _cart_path(cart, "/refund"))

    def refund_cart_line(self, cart: str, order: str) -> Order:
        """Notes that the money of one line of a confirmed cart was returned.

        Returns the line's order. Its `amount` is its share of what the cart costs.
        """
        path = _cart_path(cart, f"/lines/{_segment('order', order)}/refund")
        return self._send(partial(read_order, order), "POST", path)

    def item_orders(self, item: str, state: str | None = None) -> Iterator[ListedOrder]:
        """All recorded orders of an item, those in one state or all, page by page."""
        path = _item_path(item, "/orders")
        return _pages(self._client, path, self._token, ListedOrder, state=state)

    def journal(self, item: str) -> Iterator[JournalEntry]:
        """Who has done what to an item and its orders, the latest first, page by page."""
        path = _item_path(item, "/journal")
        return _pages(self._client, path, self._token, JournalEntry)

    def service_journal(self) -> Iterator[ServiceJournalEntry]:
        """What admins have done that belongs to no item, the latest first, page by page."""
        return _pages(self._client, "/v1/journal", self._token, ServiceJournalEntry)

    def refunds_due(self) -> Iterator[RefundDue]:
        """All money that must be returned, page by page."""
        return _pages(self._client, "/v1/refunds-due", self._token, RefundDue)

    def refund_done(self, row: str) -> RefundDue:
        """Notes that the money of a row of `refunds_due` was returned."""
        path = f"/v1/refunds-due/{_segment('row', row)}/done"
        return self._send(partial(_row, RefundDue), "POST", path)

    def place_batch(self, item: str, orders: Sequence[BuyerOrder]) -> list[Placed | Error]:
        """Places orders of several buyers, at most 512; a result for each, in this order.

        The whole request is repeated while its outcome is unknown, but not single orders whose
        outcome is: `OrderBatcher` does that.
        """
        attempts = Attempts()
        read_all = partial(read_results, item, orders)
        results = self._client.send_as(self._batch(item, orders), attempts, read_all)
        return [
            attempts.judge_part(result) if isinstance(result, Error) else result
            for result in results
        ]

    def place_batch_once(self, item: str, orders: Sequence[BuyerOrder]) -> list[Placed | Error]:
        """`place_batch` without a repeat of the request."""
        response = self._client.send_once(self._batch(item, orders))
        return read_results(item, orders, response)

    def event_page(self, after: str | None = None, *, wait: int = 0, limit: int = 100) -> EventPage:
        """The events after a cursor, or from the oldest; waits so many seconds for the first.

        Store `page.next` with what you did about the events, in one transaction.
        """
        checks.whole("wait", wait)
        query = _query(after=after, wait=wait, limit=limit)
        request = Request("GET", f"/v1/events{query}", self._token, wait=wait)
        return self._client.send(request, partial(_row, EventPage))

    def events(self, after: str | None = None, *, wait: int = 30) -> Iterator[Event]:
        """The events after a cursor, and those to come, without end.

        `event.id` is the cursor to continue from. An error ends the iterator: begin again there.
        """
        while True:
            page = self.event_page(after, wait=wait)
            yield from page.data
            after = page.next or after

    def create_webhook(self, url: str, kinds: Sequence[str] = ()) -> RegisteredWebhook:
        """Creates a webhook; the answer has its `id` and, only here, its `secret`.

        A repeat would create another one, so the request is sent once.
        """
        body = {"url": url, "kinds": list(kinds)}
        request = Request("POST", "/v1/webhooks", self._token, json=body)
        return cast(RegisteredWebhook, self._client.send_once(request).object())

    def webhooks(self) -> list[RegisteredWebhook]:
        """All webhooks, without their secrets."""
        return cast(list[RegisteredWebhook], self._send(_data, "GET", "/v1/webhooks"))

    def remove_webhook(self, webhook: str) -> None:
        """Removes a webhook."""
        self._send(Response.nothing, "DELETE", _webhook_path(webhook))

    def enable_webhook(self, webhook: str) -> None:
        """Enables a webhook that was disabled; what waits for it is sent now, in order."""
        self._send(Response.nothing, "POST", _webhook_path(webhook, "/enable"))

    def test_webhook(self, webhook: str) -> WebhookTest:
        """Sends a test event to a webhook now: `delivered`, and `status` or `error`."""
        path = _webhook_path(webhook, "/test")
        return cast(WebhookTest, self._send(Response.object, "POST", path))

    def _send(
        self, read: Callable[[Response], T], method: str, path: str, body: Any = None
    ) -> T:
        return self._client.send(Request(method, path, self._token, json=body), read)

    def _change(self, method: str, path: str, body: Any, version: int | None) -> Item:
        headers = _if_match(version)
        request = Request(method, path, self._token, headers, body)
        return self._client.send(request, _item)

    def _move(self, item: str, body: dict[str, int], key: str, version: int | None) -> Item:
        headers = {"Idempotency-Key": checks.key(key), **_if_match(version)}
        request = Request("POST", _item_path(item, "/stock"), self._token, headers, body)
        return self._client.send(request, _item)

    def _batch(self, item: str, orders: Sequence[BuyerOrder]) -> Request:
        lines = [_known(asdict(order)) for order in orders]
        return Request(
            "POST", _item_path(item, "/orders:batch"), self._token, json={"orders": lines}
        )


def _row(model: type[T], response: Response) -> T:
    return read(model, response.json(), response.status)


def _data(response: Response) -> list[dict[str, Any]]:
    data = response.object().get("data")
    if not isinstance(data, list):
        raise Contract(response.status, "data is missing")
    return data


def _page(model: type[T], response: Response) -> tuple[list[T], str | None]:
    rows = [read(model, row, response.status) for row in _data(response)]
    return rows, response.object().get("next")


def _item(response: Response) -> Item:
    more = {"version": response.version, "pending": response.status == 202}
    return read(Item, response.json(), response.status, **more)


def _pages(
    client: Client, path: str, token: str, model: type[T], state: str | None = None
) -> Iterator[T]:
    after: str | None = None
    while True:
        query = _query(after=after, state=state, limit=_ROWS)
        rows, after = client.send(Request("GET", path + query, token), partial(_page, model))
        yield from rows
        if after is None:
            return


def _query(**parameters: str | int | None) -> str:
    return "?" + urlencode(_known(parameters))


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _hold(seconds: int | None, session: str | None) -> dict[str, Any]:
    checks.if_stated(checks.whole, "seconds", seconds)
    checks.if_stated(checks.text, "session", session)
    return _known({"seconds": seconds, "session": session})


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{checks.whole("version", version)}"'}


def _item_path(item: str, rest: str = "") -> str:
    return f"/v1/items/{_segment('item', item)}{rest}"


def _cart_path(cart: str, rest: str = "") -> str:
    return f"/v1/carts/{_segment('cart', cart)}{rest}"


def _order_path(order: str, rest: str = "") -> str:
    return f"/v1/orders/{_segment('order', order)}{rest}"


def _webhook_path(webhook: str, rest: str = "") -> str:
    return f"/v1/webhooks/{_segment('webhook', webhook)}{rest}"


def _segment(field: str, name: str) -> str:
    """A segment of a path. Proxies resolve `.` and `..`, and an empty one is another path."""
    if checks.text(field, name) in ("", ".", ".."):
        raise InvalidInput(field, "a name that is not empty, `.` or `..`")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise InvalidInput(field, "a name that UTF-8 has") from None
