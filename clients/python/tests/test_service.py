"""The client against a real service behind a proxy that drops answers, cuts connections and delays.

`make test` starts both (lab/acceptance) and sets `STOCKADE_URL` (the proxy),
`STOCKADE_DIRECT_URL`, `STOCKADE_ADMIN_TOKEN`, `STOCKADE_JWT_SECRET` and `STOCKADE_PAYMENT_SECRET`. Without them these tests
are skipped.
"""

import os
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor

from stockade import Client, NewOrder, Order, OrderBatcher, Payment, RetryPolicy, mint_buyer

#: Intents of a wave. Half of them are orders of their own, half travel in batches.
WAVE = 100
WAVES_MIN, WAVES_MAX = 3, 60


@unittest.skipUnless("STOCKADE_URL" in os.environ, "no service: STOCKADE_URL is not set")
class Service(unittest.TestCase):
    def setUp(self) -> None:
        retry = RetryPolicy(deadline=90, pause=0.01, pause_max=0.2)
        self.client = Client(os.environ["STOCKADE_URL"], retry=retry, attempt_timeout=0.5)
        self.addCleanup(self.client.close)
        direct = Client(os.environ["STOCKADE_DIRECT_URL"], retry=retry)
        self.addCleanup(direct.close)
        self.admin, self.faulty_admin = (
            client.admin(os.environ["STOCKADE_ADMIN_TOKEN"]) for client in (direct, self.client)
        )
        self.item = f"python-{uuid.uuid4().hex[:8]}"
        self.admin.create_item(self.item, 10_000, price=500, limit_per_buyer=1)

    def place(self, buyer: str):
        token = mint_buyer(os.environ["STOCKADE_JWT_SECRET"], buyer)
        return self.client.buyer(token).place(NewOrder(self.item, 1))

    def wave(self, number: int, pool: ThreadPoolExecutor, batcher: OrderBatcher):
        buyers = [f"buyer-{number}-{place}" for place in range(WAVE)]
        alone = [pool.submit(self.place, buyer) for buyer in buyers[::2]]
        together = [batcher.submit(buyer, 1, f"key-{buyer}") for buyer in buyers[1::2]]
        results = [future.result(120) for future in alone + together]
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
        audit = self.admin.audit(self.item)
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
