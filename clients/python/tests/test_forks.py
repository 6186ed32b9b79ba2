"""Processes that share nothing, against a real service: as `gunicorn --preload` makes its workers.

`make test` starts the service and sets the variables of `test_service`. Without them this is skipped.
"""

import json
import os
import unittest
import uuid
from collections.abc import Callable

from stockade import Client, NewOrder, OrderBatcher, RetryPolicy, mint_buyer

#: Rounds, and the processes that place an order at the same moment in each.
ROUNDS, CHILDREN = 10, 4
#: Seconds, longer than anything takes on a busy machine.
TIMEOUT = float(os.environ.get("STOCKADE_TEST_TIMEOUT", 120))


@unittest.skipUnless("STOCKADE_URL" in os.environ, "no service: STOCKADE_URL is not set")
@unittest.skipUnless(hasattr(os, "fork"), "this system has no fork")
class Forks(unittest.TestCase):
    def setUp(self) -> None:
        # The proxy would close the connections that the processes must not share.
        self.client = Client(
            os.environ["STOCKADE_DIRECT_URL"],
            retry=RetryPolicy(deadline=TIMEOUT),
            attempt_timeout=TIMEOUT,
        )
        self.addCleanup(self.client.close)
        self.admin = self.client.admin(os.environ["STOCKADE_ADMIN_TOKEN"])
        self.item = f"forks-{uuid.uuid4().hex[:8]}"
        self.admin.create_item(self.item, 1000, limit_per_buyer=1)

    def place(self, buyer: str) -> str:
        token = mint_buyer(os.environ["STOCKADE_JWT_SECRET"], buyer)
        return self.client.buyer(token).place(NewOrder(self.item, 1)).order.id

    def rounds(self, place: Callable[[str], str]) -> None:
        """Forks children in each round, which place at once; each must get the order of its buyer."""
        orders: dict[str, str] = {}
        for number in range(ROUNDS):
            orders[f"parent-{number}"] = place(f"parent-{number}")  # Its connections are open now.
            buyers = [f"child-{number}-{child}" for child in range(CHILDREN)]
            go_read, go = os.pipe()
            children = [in_a_child(place, buyer, go_read, go) for buyer in buyers]
            os.close(go_read)
            os.close(go)  # All begin.
            for buyer, (child, answer) in zip(buyers, children, strict=True):
                orders[buyer] = json.loads(answer.read() or "null")
                answer.close()
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                self.assertEqual((buyer, status), (buyer, 0))
        recorded = {order.buyer: order.id for order in self.admin.item_orders(self.item)}
        self.assertEqual(orders, recorded, "each process got the order of its own buyer")
        self.assertEqual(len(set(orders.values())), ROUNDS * (CHILDREN + 1))

    def test_each_child_gets_its_own_orders_only(self) -> None:
        self.rounds(self.place)

    def test_each_child_of_a_used_batcher_gets_its_own_orders_only(self) -> None:
        batcher = OrderBatcher(self.admin, self.item)
        self.rounds(lambda buyer: batcher.order(buyer, 1, f"key-{buyer}").order.id)


def in_a_child(place: Callable[[str], str], buyer: str, go_read: int, go: int):
    """Forks a child that places an order when `go` is closed, and writes its id."""
    answer_read, answer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(go)
            os.close(answer_read)
            os.read(go_read, 1)
            os.write(answer, json.dumps(place(buyer)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(answer)
    return child, os.fdopen(answer_read)


if __name__ == "__main__":
    unittest.main()
