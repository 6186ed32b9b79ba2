"""Orders of several buyers, collected into requests.

HTTP is the narrowest part of a sale: a request costs the service more than the order in it. An
`OrderBatcher` therefore collects the orders that arrive while its requests are under way, and sends
them together when one returns. There is no timer: a lone order leaves at once, and under load the
batches grow by themselves.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Unpack

from .attempts import Attempts
from .client import Admin
from .errors import Error, OutcomeUnknown
from .models import BuyerOrder, BuyerOrderOptions
from .orders import Placed
from .processes import PerProcess

#: Orders of one request, at most.
ORDERS_MAX = 512
#: Requests that are under way at the same time.
FLIGHTS = 2


@dataclass
class _Waiting:
    order: BuyerOrder
    deadline: float
    attempts: Attempts = field(default_factory=Attempts)
    future: Future[Placed] = field(default_factory=Future)


@dataclass
class _Queue:
    """What waits in a process, and how many of its requests are under way."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: deque[_Waiting] = field(default_factory=deque)
    flights: int = 0

    def next_batch(self) -> list[_Waiting]:
        with self.lock:
            count = min(len(self.waiting), ORDERS_MAX)
            if count == 0:
                self.flights -= 1
            return [self.waiting.popleft() for _ in range(count)]


class OrderBatcher:
    """Places the orders of many buyers for one item, as a shop's backend does.

    Create one for the item; all threads of the shop share it. An order whose outcome is unknown is
    sent again with the same key, for as long as the client's `RetryPolicy` allows.
    """

    def __init__(self, admin: Admin, item: str, *, flights: int = FLIGHTS) -> None:
        self._admin, self._item, self._flights_max = admin, item, flights
        # The threads of a parent process do not exist in its child.
        self._queue = PerProcess(_Queue)

    def order(
        self, buyer: str, quantity: int, key: str, **options: Unpack[BuyerOrderOptions]
    ) -> Placed:
        """Places an order, and waits until its outcome is known or the deadline has passed.

        `options` are the other fields of a `BuyerOrder`, such as `amount`, the shop's total.
        """
        future = self.submit(buyer, quantity, key, **options)
        try:
            return future.result(self._admin.call_timeout)
        except TimeoutError as error:
            # The order is still in a request, or waits for one.
            raise OutcomeUnknown(error) from error

    def submit(
        self, buyer: str, quantity: int, key: str, **options: Unpack[BuyerOrderOptions]
    ) -> Future[Placed]:
        """The same without waiting. Do not forget the key, whatever becomes of the future.

        The future belongs to this process; in a child that is forked later it never ends.
        """
        deadline = time.monotonic() + self._admin.retry.deadline
        waiting = _Waiting(BuyerOrder(buyer, quantity, key, **options), deadline)
        waiting.future.set_running_or_notify_cancel()  # It cannot be called back.
        self._enqueue(self._queue.get(), [waiting])
        return waiting.future

    def _enqueue(self, queue: _Queue, orders: Sequence[_Waiting]) -> None:
        """Leaves the orders to a request that is under way, or begins one."""
        with queue.lock:
            queue.waiting.extend(orders)
            if queue.flights == self._flights_max:
                return
            queue.flights += 1
        threading.Thread(target=self._fly, args=[queue], daemon=True).start()

    def _fly(self, queue: _Queue) -> None:
        """Sends what waits, request by request, until nothing waits."""
        while batch := queue.next_batch():
            for waiting in batch:
                waiting.attempts.begin()
            results = self._send([waiting.order for waiting in batch])
            again = [
                (waiting, pause)
                for waiting, result in zip(batch, results, strict=True)
                if (pause := self._settle(waiting, result)) is not None
            ]
            if again:
                pause = max(pause for _, pause in again)
                orders = [waiting for waiting, _ in again]
                timer = threading.Timer(pause, self._enqueue, [queue, orders])
                timer.daemon = True
                timer.start()

    def _send(self, orders: Sequence[BuyerOrder]) -> Sequence[Placed | Error]:
        try:
            return self._admin.place_batch_once(self._item, orders)
        except Error as error:
            return [error] * len(orders)
        except Exception as error:  # The callers must learn of a defect too.
            return [OutcomeUnknown(error)] * len(orders)

    def _settle(self, waiting: _Waiting, result: Placed | Error) -> float | None:
        """Answers the order, or returns the pause before it is sent again."""
        if isinstance(result, Placed):
            waiting.future.set_result(result)
            return None
        error, retry = waiting.attempts.judge(result), self._admin.retry
        pause = retry.pause_after(waiting.attempts.count, error.retry_after)
        if error.is_retryable and time.monotonic() + pause <= waiting.deadline:
            return pause
        waiting.future.set_exception(error)
        return None
