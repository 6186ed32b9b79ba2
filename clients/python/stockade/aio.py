"""The client for asyncio: the same calls, each of which is awaited.

A call runs in a thread of its own, because the standard library has no HTTP client for asyncio. So
`threads` bounds how many run at the same time, and the others wait for one. Choose it no smaller
than the number of calls that must not wait for each other; a long poll of `events` is such a call.

A cancelled await stops waiting, and not the request: what has begun goes on in its thread until the
outcome is known, or the deadline. What waits for a thread is never sent. Neither says which it was,
so a cancelled `place` is as an `OutcomeUnknown`: keep the key, and place the same order again.

    async with aio.Client("http://127.0.0.1:8080") as client:
        placed = await client.buyer(token).place(NewOrder("maotai", 1))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from . import batcher, checks, client
from .errors import InvalidInput, OutcomeUnknown
from .models import BuyerOrderOptions, Event, Item, Items
from .orders import Placed
from .processes import PerProcess
from .retry import RetryPolicy

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

#: Calls that run at the same time, by default.
THREADS = 32
#: Rows that an iterator fetches by one turn of a thread: those of a page.
_ROWS = 1000


class Client:
    """A service, which may have several instances. One for a process; event loops may share it."""

    def __init__(
        self,
        *urls: str,
        retry: RetryPolicy = RetryPolicy(),
        attempt_timeout: float = 5.5,
        threads: int = THREADS,
    ) -> None:
        """The same as `stockade.Client`, and the number of threads. They start when needed."""
        if checks.whole("threads", threads) < 1:
            raise InvalidInput("threads", "1 or more")
        self._client = client.Client(*urls, retry=retry, attempt_timeout=attempt_timeout)
        # The threads of a parent process do not exist in its child.
        self._pool = PerProcess(partial(ThreadPoolExecutor, threads, "stockade"))

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the threads and connections that no call uses. No call may follow."""
        self._pool.get().shutdown(wait=False, cancel_futures=True)
        self._client.close()

    @property
    def call_timeout(self) -> float:
        """Seconds within which a call ends once it has a thread."""
        return self._client.call_timeout

    def buyer(self, token: str) -> Buyer:
        """Makes calls as the buyer who owns `token`, a JWT."""
        return Buyer(self, self._client.buyer(token))

    def admin(self, token: str) -> Admin:
        """Makes calls as the admin who owns `token`."""
        return Admin(self, self._client.admin(token))

    def payment_provider(self, secret: str) -> PaymentProvider:
        """Reports payments. `secret` is the service's `STOCKADE_PAYMENT_SECRET`."""
        return PaymentProvider(self, self._client.payment_provider(secret))

    async def item(self, item: str) -> Item:
        """Shows an item as the public sees it, at most 250 ms old."""
        return await self._run(partial(self._client.item, item))

    async def items(self, items: Sequence[str]) -> Items:
        """Shows up to 100 items as the public sees them, in one request."""
        return await self._run(partial(self._client.items, items))

    async def _run(self, call: Callable[[], R]) -> R:
        # A cancelled await takes back what waits for a thread, and nothing else.
        return await asyncio.get_running_loop().run_in_executor(self._pool.get(), call)


class _Caller(Generic[S]):
    """Makes the calls of a caller of `stockade` in threads."""

    def __init__(self, client: Client, caller: S) -> None:
        self._client, self._caller = client, caller


def _call(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[_Caller[S], P], Coroutine[Any, Any, R]]:
    """The method, which is awaited."""

    @wraps(method)
    async def call(self: _Caller[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._client._run(lambda: method(self._caller, *args, **kwargs))

    return call


def _rows(
    method: Callable[Concatenate[S, P], Iterator[R]],
) -> Callable[Concatenate[_Caller[S], P], AsyncIterator[R]]:
    """The method, whose rows are iterated by `async for`."""

    @wraps(method)
    async def rows(self: _Caller[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        iterator = method(self._caller, *args, **kwargs)
        while some := await self._client._run(lambda: list(islice(iterator, _ROWS))):
            for row in some:
                yield row

    return rows


class Buyer(_Caller[client.Buyer]):
    """Makes calls as a buyer."""

    place = _call(client.Buyer.place)
    order = _call(client.Buyer.order)
    cancel = _call(client.Buyer.cancel)
    extend_hold = _call(client.Buyer.extend_hold)
    place_cart = _call(client.Buyer.place_cart)
    cart = _call(client.Buyer.cart)
    cancel_cart = _call(client.Buyer.cancel_cart)
    extend_cart = _call(client.Buyer.extend_cart)
    orders = _rows(client.Buyer.orders)
    carts = _rows(client.Buyer.carts)


class PaymentProvider(_Caller[client.PaymentProvider]):
    """Reports payments to the service, signed with the payment secret."""

    report = _call(client.PaymentProvider.report)
    report_cart = _call(client.PaymentProvider.report_cart)


class Admin(_Caller[client.Admin]):
    """Makes calls as an admin."""

    create_item = _call(client.Admin.create_item)
    item = _call(client.Admin.item)
    items = _rows(client.Admin.items)
    set_state = _call(client.Admin.set_state)
    patch_item = _call(client.Admin.patch_item)
    add_stock = _call(client.Admin.add_stock)
    withdraw_stock = _call(client.Admin.withdraw_stock)
    set_stock = _call(client.Admin.set_stock)
    archive_item = _call(client.Admin.archive_item)
    drop_item = _call(client.Admin.drop_item)
    erase_buyer = _call(client.Admin.erase_buyer)
    audit = _call(client.Admin.audit)
    order = _call(client.Admin.order)
    cancel = _call(client.Admin.cancel)
    extend_hold = _call(client.Admin.extend_hold)
    refund = _call(client.Admin.refund)
    place_cart = _call(client.Admin.place_cart)
    cart = _call(client.Admin.cart)
    cancel_cart = _call(client.Admin.cancel_cart)
    extend_cart = _call(client.Admin.extend_cart)
    refund_cart = _call(client.Admin.refund_cart)
    refund_cart_line = _call(client.Admin.refund_cart_line)
    item_orders = _rows(client.Admin.item_orders)
    journal = _rows(client.Admin.journal)
    service_journal = _rows(client.Admin.service_journal)
    refunds_due = _rows(client.Admin.refunds_due)
    refund_done = _call(client.Admin.refund_done)
    place_batch = _call(client.Admin.place_batch)
    place_batch_once = _call(client.Admin.place_batch_once)
    event_page = _call(client.Admin.event_page)
    create_webhook = _call(client.Admin.create_webhook)
    webhooks = _call(client.Admin.webhooks)
    remove_webhook = _call(client.Admin.remove_webhook)
    enable_webhook = _call(client.Admin.enable_webhook)
    test_webhook = _call(client.Admin.test_webhook)

    async def events(self, after: str | None = None, *, wait: int = 30) -> AsyncIterator[Event]:
        """The events after a cursor, and those to come, without end.

        `event.id` is the cursor to continue from. It keeps one thread, `wait` seconds also after it
        was cancelled.
        """
        while True:
            page = await self.event_page(after, wait=wait)
            for event in page.data:
                yield event
            after = page.next or after


class OrderBatcher:
    """Places the orders of many buyers for one item. It has threads of its own, two at most."""

    def __init__(self, admin: Admin, item: str, *, flights: int = batcher.FLIGHTS) -> None:
        self._batcher = batcher.OrderBatcher(admin._caller, item, flights=flights)
        self._timeout = admin._caller.call_timeout

    async def order(
        self, buyer: str, quantity: int, key: str, **options: Unpack[BuyerOrderOptions]
    ) -> Placed:
        """Places an order, and waits until its outcome is known or the deadline has passed.

        `options` are the other fields of a `BuyerOrder`, such as `amount`, the shop's total. A
        cancelled await leaves the order in its batch: keep the key.
        """
        future = asyncio.wrap_future(self._batcher.submit(buyer, quantity, key, **options))
        try:
            return await asyncio.wait_for(future, self._timeout)
        except TimeoutError as error:
            # The order is still in a request, or waits for one.
            raise OutcomeUnknown(error) from error
