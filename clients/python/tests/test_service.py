"""The client against a real service behind a proxy that drops answers, cuts connections and delays.

`make test` starts both (lab/acceptance) and sets `STOCKADE_URL` (the proxy),
`STOCKADE_DIRECT_URL`, `STOCKADE_ADMIN_TOKEN`, `STOCKADE_JWT_SECRET`, `STOCKADE_PAYMENT_SECRET`,
`STOCKADE_TEST_TIMEOUT` and `STOCKADE_TEST_ATTEMPT_TIMEOUT`. Without them these tests are skipped.
"""

import itertools
import os
import time
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor

from stockade import (
    Buyer,
    CartPayment,
    Client,
    NewCart,
    NewOrder,
    Order,
    OrderBatcher,
    Payment,
    PlacedCart,
    Refused,
    RetryPolicy,
    mint_buyer,
)

#: Intents of a wave. Half of them are orders of their own, half travel in batches.
WAVE = 100
WAVES_MIN, WAVES_MAX = 3, 60
#: Seconds, longer than anything takes on a busy machine.
TIMEOUT = float(os.environ.get("STOCKADE_TEST_TIMEOUT", 120))
#: Seconds, shorter than the proxy holds some answers.
ATTEMPT_TIMEOUT = float(os.environ.get("STOCKADE_TEST_ATTEMPT_TIMEOUT", 3))


@unittest.skipUnless("STOCKADE_URL" in os.environ, "no service: STOCKADE_URL is not set")
class Service(unittest.TestCase):
    def setUp(self) -> None:
        retry = RetryPolicy(deadline=TIMEOUT, pause=0.01, pause_max=0.2)
        self.client = Client(os.environ["STOCKADE_URL"], retry=retry, attempt_timeout=ATTEMPT_TIMEOUT)
        self.addCleanup(self.client.close)
        direct = Client(os.environ["STOCKADE_DIRECT_URL"], retry=retry)
        self.addCleanup(direct.close)
        self.admin, self.faulty_admin = (
            client.admin(os.environ["STOCKADE_ADMIN_TOKEN"]) for client in (direct, self.client)
        )
        self.item = f"python-{uuid.uuid4().hex[:8]}"
        self.admin.create_item(
            self.item, 10_000, price=500, limit_per_buyer=1, max_hold_seconds=1800
        )

    def place(self, buyer: str):
        token = mint_buyer(os.environ["STOCKADE_JWT_SECRET"], buyer)
        return self.client.buyer(token).place(NewOrder(self.item, 1))

    def wave(self, number: int, pool: ThreadPoolExecutor, batcher: OrderBatcher):
        buyers = [f"buyer-{number}-{place}" for place in range(WAVE)]
        alone = [pool.submit(self.place, buyer) for buyer in buyers[::2]]
        together = [batcher.submit(buyer, 1, f"key-{buyer}") for buyer in buyers[1::2]]
        results = [future.result(2 * TIMEOUT) for future in alone + together]
        return dict(zip(buyers[::2] + buyers[1::2], results, strict=True))

    def test_each_intent_ends_as_exactly_one_order(self) -> None:
        placed, batcher = {}, OrderBatcher(self.faulty_admin, self.item)
        with ThreadPoolExecutor(16) as pool:
            for number in range(WAVES_MAX):
                placed |= self.wave(number, pool, batcher)
                # A replay is the proof that an answer was lost, and its order was not.
                replays = sum(one.replayed for one in placed.values())
                if number + 1 >= WAVES_MIN and replays:
                    break
        self.assertGreater(replays, 0, "the proxy has dropped no answer")
        recorded = list(self.admin.item_orders(self.item))
        self.assertEqual(len(recorded), len(placed))
        self.assertEqual(
            {order.buyer: order.id for order in recorded},
            {buyer: one.order.id for buyer, one in placed.items()},
        )
        print(f"python: {len(placed)} intents, {replays} replays, {len(recorded)} orders")
        self.pay_and_cancel([one.order for one in placed.values()])

    def test_each_intent_ends_as_exactly_one_cart(self) -> None:
        other = f"{self.item}-more"
        self.admin.create_item(other, 10_000, price=50, max_hold_seconds=1800)
        provider = self.client.payment_provider(os.environ["STOCKADE_PAYMENT_SECRET"])

        def buy(place: int):
            buyer, placed = self.place_cart(place, [(self.item, 1), (other, 2)])
            cart = placed.cart
            self.assertEqual(buyer.extend_cart(cart.id, 1800).state, "held")
            if place % 2:
                ended = buyer.cancel_cart(cart.id)
            else:
                ended = provider.report_cart(CartPayment(f"pay-{cart.id}", cart.id, 600))
            self.assertEqual(ended, buyer.cart(cart.id))
            return placed.replayed, ended

        carts, replays = [], 0
        with ThreadPoolExecutor(8) as pool:
            for number in range(WAVES_MAX):
                for replayed, cart in pool.map(buy, range(40 * number, 40 * (number + 1))):
                    replays += replayed
                    carts.append(cart)
                if replays:
                    break
        self.assertGreater(replays, 0, "the proxy has dropped no answer")
        half = len(carts) // 2
        for place, item in enumerate((self.item, other)):
            expected = {cart.lines[place].order: cart.state for cart in carts}
            found = self.orders_with_units_or_of(item, expected)
            self.assertEqual(found, expected, "one order for each line, in the cart's state")
            self.assertEqual(list(found.values()).count("confirmed"), half)
            audit = self.admin.audit(item, full=True)
            self.assertEqual((audit["drift"], audit["oversold"]), (0, 0), audit)
        print(f"python: {len(carts)} carts, {replays} replays")

    def place_cart(self, place: int, lines: list[tuple[str, int]]) -> tuple[Buyer, PlacedCart]:
        """A cart that a busy machine could not place in time is final: the next has a new key."""
        until = time.monotonic() + TIMEOUT
        for attempt in itertools.count():
            name = f"{self.item}-{place}-{attempt}"
            buyer = self.client.buyer(mint_buyer(os.environ["STOCKADE_JWT_SECRET"], name))
            try:
                return buyer, buyer.place_cart(NewCart(lines))
            except Refused as error:
                if not error.is_code("cart_timed_out") or time.monotonic() > until:
                    raise

    def orders_with_units_or_of(self, item: str, expected: dict[str, str]) -> dict[str, str]:
        """The states of the orders that are expected, and of the others that have units.

        A cart that was not placed in time has none: what it had taken is released at once, or by a
        reconciler.
        """
        until = time.monotonic() + TIMEOUT
        while True:
            found = {
                order.id: order.state
                for order in self.admin.item_orders(item)
                if order.state in ("held", "confirmed") or order.id in expected
            }
            if len(found) == len(expected) or time.monotonic() > until:
                return found
            time.sleep(0.1)

    def pay_and_cancel(self, orders: list[Order]) -> None:
        provider = self.client.payment_provider(os.environ["STOCKADE_PAYMENT_SECRET"])

        def end(order: Order) -> str:
            if order in paid:
                return provider.report(Payment(f"pay-{order.id}", order.id, 500)).state
            self.faulty_admin.extend_hold(order.id, 1800)
            return self.faulty_admin.cancel(order.id).state

        paid, cancelled = orders[:20], orders[20:40]
        with ThreadPoolExecutor(8) as pool:
            states = list(pool.map(end, paid + cancelled))
        self.assertEqual(states, ["confirmed"] * 20 + ["cancelled"] * 20)
        counts = {
            state: len(list(self.admin.item_orders(self.item, state)))
            for state in ("held", "confirmed", "cancelled")
        }
        held = len(orders) - 40
        self.assertEqual(counts, {"held": held, "confirmed": 20, "cancelled": 20})
        audit = self.admin.audit(self.item, full=True)
        self.assertEqual((audit["drift"], audit["oversold"]), (0, 0), audit)
        self.read_events({order.id for order in orders}, {order.id for order in paid})

    def read_events(self, held: set[str], confirmed: set[str]) -> None:
        """Follows the events through the proxy until each order has had its own."""
        seen: dict[str, list[str]] = {"order.held": [], "order.confirmed": []}
        for event in self.faulty_admin.events(wait=1):
            if event.subject == self.item and event.kind in seen:
                seen[event.kind] += event.orders
            if held == set(seen["order.held"]) and confirmed == set(seen["order.confirmed"]):
                break
        self.assertEqual([len(held), len(confirmed)], [len(orders) for orders in seen.values()])


if __name__ == "__main__":
    unittest.main()
