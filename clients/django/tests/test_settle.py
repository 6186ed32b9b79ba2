from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from stockade_django import checkouts, conf
from stockade_django.models import Checkout, State
from stockade_django.settle import settle
from tests.service import ServiceTest, eventually
from tests.shop import TestShop


class Settle(ServiceTest):
    def test_a_worker_that_died_while_it_charged_gets_its_money_and_units_back(self) -> None:
        self.sell(1)
        checkout = self.reserve()
        checkouts.charging(checkout)
        self.assertEqual(settle(), 0, "its worker may live")
        self.end_lease(checkout)
        self.assertEqual(settle(), 1)
        self.assertEqual(self.state(checkout), State.RELEASED)
        self.assertEqual(TestShop.told, [("refund", checkout.payment), ("released", self.basket)])
        self.assertEqual(self.units()["held"], 0)

    def test_a_worker_that_only_seemed_dead_places_nothing(self) -> None:
        self.sell(1)
        checkout = self.reserve()
        checkouts.charging(checkout)
        self.end_lease(checkout)
        settle()
        with self.assertRaises(checkouts.Lost):
            checkouts.place(checkout, "order-1")
        TestShop.told.clear()
        checkouts.abandon(checkout)
        self.assertEqual((TestShop.told, self.state(checkout)), ([], State.RELEASED))

    def test_a_payment_that_could_not_be_reported_is_reported_later(self) -> None:
        self.sell(1)
        checkout = self.reserve()
        self.place(checkout)
        self.without_service()
        checkouts.report(checkout)
        self.assertEqual(self.state(checkout), State.PLACED)
        self.use()
        self.assertEqual(settle(), 1)
        self.assertEqual((self.state(checkout), self.units()["confirmed"]), (State.CONFIRMED, 1))

    def test_a_hold_waits_for_its_buyer_until_it_ends(self) -> None:
        self.sell(1)
        checkout = self.reserve()
        checkouts.let_go(checkout)
        self.assertEqual((settle(), self.state(checkout)), (0, State.HELD))
        Checkout.objects.update(expires_at=timezone.now())
        settle()
        self.assertEqual(self.state(checkout), State.RELEASED)

    def test_an_undecided_checkout_whose_buyer_left_is_given_up(self) -> None:
        self.sell(1)
        self.without_service()
        with self.assertRaises(checkouts.Unknown):
            self.reserve()
        self.use()
        self.assertEqual(settle(), 0)
        Checkout.objects.update(lease_until=timezone.now() - timedelta(seconds=121))
        settle()
        self.assertEqual(Checkout.objects.get().state, State.RELEASED)
        self.assertEqual(self.units()["held"], 0)

    def pay_late(self, has_units: bool) -> Checkout:
        """A checkout whose payment is reported after its hold has expired."""
        self.sell(1, hold_seconds=1)
        self.use(LEASE_SECONDS=0)
        checkout = self.reserve()
        self.use()
        eventually(lambda: conf.buyer("ann").cart(checkout.cart).state == "expired")
        eventually(lambda: self.admin.item(self.item).available == 1)
        if not has_units:
            self.admin.withdraw_stock(self.item, 1, "withdrawn")
            eventually(lambda: self.admin.item(self.item).stock == 0)
        self.place(checkout)
        checkouts.report(checkout)
        return checkout

    def test_an_order_paid_after_its_hold_takes_a_unit_that_is_left(self) -> None:
        checkout = self.pay_late(has_units=True)
        self.assertEqual(self.state(checkout), State.CONFIRMED)
        self.assertEqual(self.units(), {"held": 0, "confirmed": 1})

    def test_an_order_paid_when_no_unit_is_left_is_cancelled_and_its_money_returned(self) -> None:
        checkout = self.pay_late(has_units=False)
        self.assertEqual(self.state(checkout), State.REFUND_DUE)
        settle()
        self.assertEqual(self.state(checkout), State.REFUNDED)
        self.assertEqual(TestShop.told, [("refund", checkout.payment), ("cancelled", "order-1")])
        due = [row.payment for row in self.admin.refunds_due()]
        self.assertNotIn(checkout.payment, due)

    def test_an_order_that_the_staff_cancels_returns_its_money_and_its_units(self) -> None:
        self.sell(1)
        checkout = self.reserve()
        self.place(checkout)
        checkouts.report(checkout)
        self.assertTrue(checkouts.cancel_placed("order-1", "cancelled by the staff"))
        self.assertFalse(checkouts.cancel_placed("order-1", "again"))
        settle()
        self.assertEqual(self.state(checkout), State.REFUNDED)
        self.assertIn(("refund", checkout.payment), TestShop.told)
        eventually(lambda: self.admin.item(self.item).available == 1)

    def test_an_order_that_is_cancelled_before_its_report_frees_its_units(self) -> None:
        self.sell(1)
        checkout = self.reserve()
        self.place(checkout)
        checkouts.cancel_placed("order-1", "cancelled by the staff")
        self.end_lease(checkout)
        settle()
        self.assertEqual(self.state(checkout), State.REFUNDED)
        eventually(lambda: self.admin.item(self.item).available == 1)

    def test_a_failing_checkout_does_not_keep_the_others(self) -> None:
        self.sell(2)
        broken, other = self.reserve(), self.reserve(basket="another")
        for number, checkout in enumerate((broken, other)):
            self.place(checkout, f"order-{number}")
            self.end_lease(checkout)
        Checkout.objects.filter(pk=broken.pk).update(cart="00000000-0000-0000-0000-000000000000")
        settle()
        self.assertEqual(self.state(other), State.CONFIRMED)
        self.assertEqual(self.state(broken), State.PLACED)
