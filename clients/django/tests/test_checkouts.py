from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

from django.utils import timezone
from stockade import NewCart, Problem, Refused

from stockade_django import checkouts, conf
from stockade_django.models import Checkout, State
from tests.service import ServiceTest
from tests.shop import TestShop


class Checkouts(ServiceTest):
    def test_a_checkout_is_held_charged_placed_and_confirmed(self) -> None:
        self.sell(5)
        checkout = self.reserve(units=2)
        self.assertEqual((checkout.state, self.units()), (State.HELD, {"held": 2, "confirmed": 0}))
        self.place(checkout)
        checkouts.report(checkout)
        self.assertEqual(self.state(checkout), State.CONFIRMED)
        self.assertEqual(self.units(), {"held": 0, "confirmed": 2})
        self.assertEqual(TestShop.told, [("confirmed", "order-1")])
        found = conf.buyer("ann").cart(checkout.cart)
        self.assertEqual(found.payment, checkout.payment)

    def test_a_basket_without_items_of_stockade_has_no_checkout(self) -> None:
        self.assertIsNone(checkouts.reserve(self.basket, "ann", []))
        self.assertFalse(Checkout.objects.exists())

    def test_a_second_click_finds_the_first_at_work(self) -> None:
        self.sell(5)
        self.reserve()
        with self.assertRaises(checkouts.Busy):
            self.reserve()
        self.assertEqual(self.units()["held"], 1)

    def test_a_later_click_goes_on_with_the_same_hold(self) -> None:
        self.sell(5)
        first = self.reserve()
        checkouts.let_go(first)
        second = self.reserve()
        self.assertEqual((second.pk, second.cart), (first.pk, first.cart))
        self.assertEqual(self.units()["held"], 1)

    def test_a_worker_whose_checkout_another_click_has_taken_charges_nothing(self) -> None:
        self.sell(5)
        slow = self.reserve()
        self.end_lease(slow)
        other = self.reserve()
        with self.assertRaises(checkouts.Lost):
            checkouts.charging(slow)
        self.assertEqual(checkouts.charging(other), other.payment)

    def test_a_changed_basket_gives_its_first_hold_back(self) -> None:
        self.sell(5)
        first = self.reserve(units=1)
        checkouts.let_go(first)
        second = self.reserve(units=3)
        self.assertEqual((second.attempt, self.state(first)), (2, State.RELEASED))
        self.assertEqual(self.units()["held"], 3)

    def test_sold_out_ends_the_attempt_and_the_next_has_a_new_key(self) -> None:
        self.sell(1)
        self.reserve(basket="another")
        with self.assertRaises(checkouts.NotHeld) as refused:
            self.reserve(buyer="bob")
        self.assertEqual(refused.exception.code, "sold_out")
        with self.assertRaises(checkouts.NotHeld):
            self.reserve(buyer="bob")
        attempts = Checkout.objects.filter(basket=self.basket).values_list("attempt", "state")
        self.assertEqual(list(attempts), [(1, State.REFUSED), (2, State.REFUSED)])

    def test_a_declined_card_returns_the_units_and_the_next_try_has_a_new_key(self) -> None:
        self.sell(1)
        first = self.reserve()
        checkouts.charging(first)
        checkouts.abandon(first)
        self.assertEqual(TestShop.told, [("refund", first.payment), ("released", self.basket)])
        second = self.reserve()
        self.assertEqual((self.state(first), second.attempt), (State.RELEASED, 2))
        self.assertNotEqual((second.key, second.payment), (first.key, first.payment))

    def test_an_unknown_outcome_keeps_the_key(self) -> None:
        self.sell(1)
        self.without_service()
        with self.assertRaises(checkouts.Unknown):
            self.reserve()
        self.assertEqual(Checkout.objects.get().state, State.PLACING)
        self.use()
        checkout = self.reserve()
        self.assertEqual((checkout.attempt, checkout.state), (1, State.HELD))

    def test_a_hold_whose_answer_was_lost_is_found_again(self) -> None:
        self.sell(1)
        self.without_service()
        with self.assertRaises(checkouts.Unknown):
            self.reserve()
        self.use()
        key = Checkout.objects.get().key
        lost = conf.buyer("ann").place_cart(NewCart([(self.item, 1)], key=key)).cart
        self.assertEqual(self.reserve().cart, lost.id)

    def test_a_refusal_without_a_record_decides_nothing_while_a_call_may_be_late(self) -> None:
        refused = Refused(Problem(409, "sold_out", final=False))
        self.use(PATIENCE_SECONDS=3, ATTEMPT_SECONDS=2)
        for lost_ago, expected in ((1, checkouts.Unknown), (60, checkouts.NotHeld)):
            with self.subTest(lost_ago), patch("stockade.Buyer.place_cart", side_effect=refused):
                lost_at = timezone.now() - timedelta(seconds=lost_ago)
                row = checkouts._create(f"basket-{lost_ago}", 1, "ann", [[self.item, 1]])
                checkouts.let_go(row, lost_at=lost_at)
                with self.assertRaises(expected):
                    self.reserve(basket=row.basket)

    def test_a_dead_workers_call_counts_as_lost(self) -> None:
        checkout = checkouts._create(self.basket, 1, "ann", [[self.item, 1]])
        self.end_lease(checkout)
        checkout.refresh_from_db()
        self.assertTrue(checkouts.take(checkout))
        self.assertIsNotNone(checkout.lost_at)

    def test_an_expired_token_is_no_decision(self) -> None:
        self.sell(1)
        self.use(JWT_SECRET="another secret that is long enough to sign")
        with self.assertRaises(checkouts.Unknown):
            self.reserve()
        self.assertEqual(Checkout.objects.get().state, State.PLACING)

    def test_nothing_is_placed_with_a_hold_that_was_never_charged(self) -> None:
        self.sell(1)
        with self.assertRaises(checkouts.Lost):
            checkouts.place(self.reserve(), "order-1")

    def test_an_event_is_noted_once_and_out_of_order(self) -> None:
        self.sell(1)
        checkout = self.reserve()
        self.place(checkout)
        checkouts.note(checkout.cart, "expired")
        self.assertEqual(self.state(checkout), State.PLACED)
        checkouts.note(checkout.cart, "confirmed")
        checkouts.note(checkout.cart, "confirmed")
        self.assertEqual(TestShop.told, [("confirmed", "order-1")])
