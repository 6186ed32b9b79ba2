"""What an admin and a buyer do besides orders, against a real service.

`make test` starts the service and sets the variables of `test_service`. Without them this is skipped.
"""

import os
import time
import unittest
import uuid
from datetime import UTC, datetime, timedelta

from stockade import (
    BuyerOrder,
    CartPayment,
    Client,
    Item,
    NewCart,
    NewOrder,
    OrderBatcher,
    Payment,
    Refused,
    RetryPolicy,
    mint_buyer,
)

#: Seconds, longer than anything takes on a busy machine.
TIMEOUT = float(os.environ.get("STOCKADE_TEST_TIMEOUT", 120))


@unittest.skipUnless("STOCKADE_URL" in os.environ, "no service: STOCKADE_URL is not set")
class AnAdmin(unittest.TestCase):
    def setUp(self) -> None:
        retry = RetryPolicy(deadline=TIMEOUT)
        url = os.environ["STOCKADE_DIRECT_URL"]
        client = Client(url, retry=retry, attempt_timeout=TIMEOUT)
        self.addCleanup(client.close)
        self.admin = client.admin(os.environ["STOCKADE_ADMIN_TOKEN"])
        self.item = f"admin-{uuid.uuid4().hex[:8]}"
        token = mint_buyer(os.environ["STOCKADE_JWT_SECRET"], f"buyer-of-{self.item}")
        self.buyer = client.buyer(token)
        self.provider = client.payment_provider(os.environ["STOCKADE_PAYMENT_SECRET"])
        self.admin.create_item(self.item, 10, price=1999, max_hold_seconds=1800)

    def settled(self, stock: int) -> int:
        """The version of the item when it has this stock and nothing moves any more."""
        until = time.monotonic() + TIMEOUT
        while True:
            item = self.admin.item(self.item)
            if (item.stock, item.withdrawing) == (stock, 0) or time.monotonic() > until:
                self.assertEqual((item.stock, item.withdrawing), (stock, 0))
                return item.version
            time.sleep(0.05)

    def test_stock_is_added_withdrawn_and_set(self) -> None:
        for _ in range(2):  # The same key is the same change.
            self.admin.add_stock(self.item, 5, "delivery-1")
        self.settled(15)
        for _ in range(2):
            self.admin.withdraw_stock(self.item, 3, "count-1")
        version = self.settled(12)
        self.admin.set_stock(self.item, 20, version)
        self.settled(20)
        with self.assertRaises(Refused) as refused:
            self.admin.set_stock(self.item, 30, version)
        self.assertTrue(refused.exception.is_code("version_mismatch"))

    def archived(self) -> Item:
        """The item once it is archived. What the ledger has not recorded yet stands against it."""
        until = time.monotonic() + TIMEOUT
        while True:
            try:
                item = self.admin.archive_item(self.item)
                if not item.pending or time.monotonic() > until:
                    return item
            except Refused as refused:
                if not refused.is_code("item_not_archivable") or time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def test_an_item_is_changed_listed_closed_and_archived(self) -> None:
        version = self.admin.item(self.item).version
        later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        changed = self.admin.patch_item(
            self.item, version=version, limit_per_buyer=2, closes_at=later
        )
        self.assertEqual(changed.limit_per_buyer, 2)
        self.assertIsNotNone(changed.closes_at)
        self.assertIsNone(self.admin.patch_item(self.item, limit_per_buyer=None).limit_per_buyer)
        listed = {item.id: item for item in self.admin.items()}[self.item]
        self.assertEqual((listed.stock, listed.state), (10, "open"))
        self.admin.set_state(self.item, "closed")
        self.assertEqual(self.archived().state, "archived")
        with self.assertRaises(Refused) as refused:
            self.admin.drop_item(self.item)
        self.assertTrue(refused.exception.is_code("item_not_droppable"))

    def test_a_buyer_lists_carts_and_an_admin_extends_and_cancels_them(self) -> None:
        placed = self.buyer.place_cart(NewCart([(self.item, 2)])).cart
        self.assertEqual([cart.id for cart in self.buyer.carts()], [placed.id])
        extended = self.admin.extend_cart(placed.id, 1800)
        self.assertGreater(extended.expires_at, placed.expires_at)
        self.assertEqual(self.admin.cancel_cart(placed.id).state, "cancelled")
        self.assertEqual([cart.state for cart in self.buyer.carts()], ["cancelled"])

    def test_an_order_costs_the_total_of_the_shop(self) -> None:
        dearer = self.buyer.place(NewOrder(self.item, 1, amount=2494)).order
        cheaper = OrderBatcher(self.admin, self.item).order("ann", 1, "key", amount=1499).order
        [free] = self.admin.place_batch(self.item, [BuyerOrder("ann", 1, "free", 0)])
        self.assertEqual(self.buyer.order(dearer.id).amount, 2494)
        self.assertEqual((cheaper.price, cheaper.amount, free.order.amount), (1999, 1499, 0))
        with self.assertRaises(Refused) as refused:
            self.provider.report(Payment(f"price-{dearer.id}", dearer.id, 1999))
        self.assertTrue(refused.exception.is_code("amount_mismatch"))
        for order in (dearer, cheaper):
            paid = self.provider.report(Payment(f"total-{order.id}", order.id, order.amount))
            self.assertEqual(paid.state, "confirmed")
        with self.assertRaises(Refused) as refused:
            self.buyer.place(NewOrder(self.item, 1, amount=1998))
        self.assertTrue(refused.exception.is_code("invalid_request"))

    def test_an_admin_places_carts_for_a_buyer_at_any_total(self) -> None:
        buyer = f"buyer-of-{self.item}"
        cart = NewCart([(self.item, 1)], amount=1499)
        placed = self.admin.place_cart(buyer, cart)
        self.assertEqual((placed.replayed, placed.cart.amount), (False, 1499))
        self.assertEqual([row.id for row in self.buyer.carts()], [placed.cart.id])
        self.assertTrue(self.admin.place_cart(buyer, cart).replayed)
        unchecked = NewCart([(self.item, 1)], amount="unchecked")
        placed = self.admin.place_cart(buyer, unchecked).cart
        self.assertEqual((placed.amount, placed.amount_check), (1999, "unchecked"))
        paid = self.provider.report_cart(CartPayment(f"pay-{placed.id}", placed.id, 777))
        self.assertEqual((paid.state, paid.amount), ("confirmed", 777))
        again = self.admin.place_cart(buyer, unchecked)
        self.assertEqual((again.replayed, again.cart), (True, paid))
        with self.assertRaises(Refused) as refused:
            self.buyer.place_cart(NewCart([(self.item, 1)], amount=1998))
        self.assertTrue(refused.exception.is_code("invalid_request"))

    def test_a_name_is_erased(self) -> None:
        self.buyer.place(NewOrder(self.item, 1))
        with self.assertRaises(Refused) as refused:
            self.admin.erase_buyer(f"buyer-of-{self.item}")
        self.assertTrue(refused.exception.is_code("buyer_has_held_orders"))
        erased = self.admin.erase_buyer(f"stranger-of-{self.item}")
        self.assertEqual((erased.erased, erased.kept), (0, 0))

    def test_a_webhook_is_tested_and_enabled(self) -> None:
        # Nothing listens there.
        webhook = self.admin.create_webhook("http://127.0.0.1:1/hook", ["order.held"])["id"]
        self.addCleanup(self.admin.remove_webhook, webhook)
        self.assertIs(self.admin.test_webhook(webhook)["delivered"], False)
        self.admin.enable_webhook(webhook)
        self.assertIn(webhook, [row["id"] for row in self.admin.webhooks()])


if __name__ == "__main__":
    unittest.main()
