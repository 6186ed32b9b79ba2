"""The client for asyncio: what a cancelled await leaves, and that nothing is missing."""

import asyncio
import inspect
import os
import threading
import unittest
import uuid

import stockade
from stockade import InvalidInput, NewOrder, OutcomeUnknown, RetryPolicy, aio, mint_buyer

from .test_calls import QUIET
from .test_retries import FAST, HELD, Server

REPLAYED = (201, HELD, {"Idempotent-Replayed": "true"})
#: Seconds, longer than anything takes on a busy machine.
TIMEOUT = float(os.environ.get("STOCKADE_TEST_TIMEOUT", 120))


class Slow:
    """An answer that the server holds back."""

    def __init__(self, answer=(201, HELD)) -> None:
        self.begun, self.done, self.answer = threading.Event(), threading.Event(), answer

    def __call__(self, _) -> tuple:
        self.begun.set()
        self.done.wait(TIMEOUT)
        return self.answer

    async def has_begun(self) -> None:
        await asyncio.to_thread(self.begun.wait, TIMEOUT)


class Calls(unittest.IsolatedAsyncioTestCase):
    async def test_a_cancelled_placement_can_be_asked_for_with_the_same_key(self) -> None:
        slow, order = Slow(), NewOrder("vase", 1)
        with Server(slow, REPLAYED) as server:
            async with aio.Client(server.url, retry=FAST, attempt_timeout=TIMEOUT) as client:
                buyer = client.buyer("token")
                placing = asyncio.create_task(buyer.place(order))
                await slow.has_begun()
                placing.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await placing
                placed = await buyer.place(order)
                self.assertTrue(placed.replayed)
                self.assertEqual([key for key, _ in server.seen], [order.key] * 2)
            slow.done.set()

    async def test_a_cancelled_call_does_not_block_the_others(self) -> None:
        slow = Slow()
        with Server(slow, (201, HELD)) as server:
            async with aio.Client(server.url, attempt_timeout=TIMEOUT, threads=2) as client:
                placing = asyncio.create_task(client.buyer("token").place(NewOrder("vase")))
                await slow.has_begun()
                placing.cancel()
                orders = [client.buyer("token").place(NewOrder("vase")) for _ in range(20)]
                placed = await asyncio.gather(*orders)
                self.assertEqual({one.order.state for one in placed}, {"held"})
            slow.done.set()

    async def test_what_waits_for_a_thread_is_not_sent_after_it_was_cancelled(self) -> None:
        slow = Slow()
        with Server(slow, (201, HELD)) as server:
            async with aio.Client(server.url, attempt_timeout=TIMEOUT, threads=1) as client:
                buyer = client.buyer("token")
                first = asyncio.create_task(buyer.place(NewOrder("vase", 1, "first")))
                await slow.has_begun()
                second = asyncio.create_task(buyer.place(NewOrder("vase", 1, "second")))
                await asyncio.sleep(0)  # It waits for the thread now.
                second.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await second
                slow.done.set()
                await first
                await buyer.place(NewOrder("vase", 1, "third"))
                self.assertEqual([key for key, _ in server.seen], ["first", "third"])

    async def test_rows_come_page_by_page(self) -> None:
        row = {name: HELD[name] for name in HELD if name not in ("price", "a_later_field")}
        pages = [(200, {"data": [row] * 3, "next": "more"}), (200, {"data": [row], "next": None})]
        with Server(*pages) as server:
            async with aio.Client(server.url) as client:
                rows = [order.id async for order in client.buyer("token").orders()]
        self.assertEqual(rows, [HELD["id"]] * 4)

    async def test_events_follow_the_cursor(self) -> None:
        event = {"type": "stockade.cart.held", "time": HELD["expires_at"], "data": {"cart": "c-1"}}
        pages = [(200, {"data": [{"id": f"e-{n}", **event}], "next": f"e-{n}"}) for n in range(3)]
        with Server(*pages) as server:
            async with aio.Client(server.url) as client:
                seen = []
                async for one in client.admin("token").events(wait=0):
                    seen.append((one.id, one.cart))
                    if len(seen) == 3:
                        break
        self.assertEqual(seen, [(f"e-{n}", "c-1") for n in range(3)])

    async def test_a_batcher_bounds_its_wait(self) -> None:
        slow = Slow((200, {"results": [{**HELD, "status": 201}]}))
        with Server(slow) as server:
            retry = RetryPolicy(deadline=0.2)
            # The attempt is longer than the call, as one that another order has begun may be.
            async with aio.Client(server.url, retry=retry, attempt_timeout=TIMEOUT) as client:
                batcher = aio.OrderBatcher(client.admin("token"), "vase")
                batcher._timeout = 0.2
                with self.assertRaises(OutcomeUnknown):
                    await batcher.order("ann", 1, "key")
                slow.done.set()
                batcher._timeout = TIMEOUT
                self.assertEqual((await batcher.order("ann", 1, "key")).order.state, "held")

    async def test_the_number_of_threads_is_checked(self) -> None:
        for threads in (0, "1", 1.5):
            with self.assertRaises(InvalidInput):
                aio.Client("http://127.0.0.1:1", threads=threads)

    def test_every_call_of_the_client_can_be_awaited(self) -> None:
        for name in ("Client", "Buyer", "PaymentProvider", "Admin", "OrderBatcher"):
            ours, theirs = (
                {call for call, _ in inspect.getmembers(of, inspect.isfunction) if call[0] != "_"}
                for of in (getattr(aio, name), getattr(stockade, name))
            )
            hidden = QUIET - {"close", "buyer", "admin", "payment_provider"} | {"submit"}
            self.assertEqual(ours, theirs - hidden, name)
            for call in ours - QUIET:
                method = getattr(getattr(aio, name), call)
                is_async = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
                self.assertTrue(is_async, f"{name}.{call}")

    @unittest.skipUnless(hasattr(os, "fork"), "this system has no fork")
    def test_a_child_has_threads_of_its_own(self) -> None:
        async def place() -> str:
            return (await client.buyer("token").place(NewOrder("vase", 1))).order.state

        with Server((201, HELD)) as server:
            client = aio.Client(server.url)
            asyncio.run(place())
            child = os.fork()
            if child == 0:
                passed = False
                try:
                    passed = asyncio.run(place()) == "held"
                finally:
                    os._exit(0 if passed else 1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            client.close()


@unittest.skipUnless("STOCKADE_URL" in os.environ, "no service: STOCKADE_URL is not set")
class Service(unittest.IsolatedAsyncioTestCase):
    """Against a real service behind a proxy that drops answers."""

    async def test_each_intent_ends_as_exactly_one_order_although_calls_are_cancelled(self) -> None:
        retry = RetryPolicy(deadline=TIMEOUT, pause=0.01, pause_max=0.2)
        timeout = float(os.environ.get("STOCKADE_TEST_ATTEMPT_TIMEOUT", 3))
        url, secret = os.environ["STOCKADE_URL"], os.environ["STOCKADE_JWT_SECRET"]
        item = f"aio-{uuid.uuid4().hex[:8]}"
        orders = {f"{item}-{number}": NewOrder(item, 1) for number in range(100)}
        async with aio.Client(url, retry=retry, attempt_timeout=timeout, threads=16) as client:
            admin = client.admin(os.environ["STOCKADE_ADMIN_TOKEN"])
            await admin.create_item(item, 1000, limit_per_buyer=1)

            async def place(buyer: str) -> str:
                call = client.buyer(mint_buyer(secret, buyer)).place(orders[buyer])
                return (await call).order.id

            begun = [asyncio.create_task(place(buyer)) for buyer in orders]
            await begun[0]
            cancelled = sum(task.cancel() for task in begun)
            await asyncio.gather(*begun, return_exceptions=True)
            self.assertGreater(cancelled, 0)
            placed = dict(zip(orders, await asyncio.gather(*map(place, orders)), strict=True))
            recorded = {order.buyer: order.id async for order in admin.item_orders(item)}
        self.assertEqual(recorded, placed)


if __name__ == "__main__":
    unittest.main()
