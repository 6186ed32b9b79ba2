"""Stock, availability, pages, webhooks and checks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from unittest.mock import patch

from django.contrib.auth.models import AnonymousUser
from django.test import RequestFactory, TestCase, override_settings

from stockade import Client
from stockade_django import availability, checkouts, checks
from stockade_django.buyers import buyer_of
from stockade_django.models import Checkout, HandledEvent, State, WebhookSecret
from stockade_django.shop import ShopItem
from stockade_django.stock import sync
from stockade_django.views import SESSION_BASKET
from tests.service import ServiceTest, eventually
from tests.shop import TestShop


class Stock(ServiceTest):
    def test_the_stock_of_stockade_is_what_the_shop_has_and_what_it_sold(self) -> None:
        TestShop.stock[:] = [ShopItem(self.item, 5, {"title": "five"})]
        self.assertEqual(sync(), {self.item: "created with 5"})
        self.place(self.reserve(units=2))
        # The shop has allocated the two, and counts three as unsold.
        TestShop.stock[:] = [ShopItem(self.item, 3)]
        self.assertEqual(sync(), {self.item: "5, as before"})
        TestShop.stock[:] = [ShopItem(self.item, 13)]
        self.assertEqual(sync(), {self.item: "5 -> 15"})
        self.assertEqual(self.admin.item(self.item).stock, 15)

    def test_a_stock_that_changed_since_it_was_read_is_left_to_the_next_sync(self) -> None:
        self.sell(5)
        TestShop.stock[:] = [ShopItem(self.item, 9)]
        read = self.admin.item(self.item)
        self.admin.add_stock(self.item, 1, "delivery")
        with patch("stockade.Admin.item", return_value=read):
            self.assertEqual(sync(), {self.item: "5, not 9: version_mismatch"})
        self.assertEqual(self.admin.item(self.item).stock, 6)
        self.assertEqual(sync(), {self.item: "6 -> 9"})

    def test_a_page_shows_the_last_number_while_stockade_does_not_answer(self) -> None:
        self.sell(7)
        self.use(AVAILABILITY_SECONDS=0)
        # A page waits for half a second only, which a busy machine may exceed.
        eventually(lambda: availability.available(self.item) == 7)
        self.without_service()
        self.assertEqual(availability.available(self.item), 7)
        self.assertIsNone(availability.available("never seen"))

    def test_a_page_of_many_goods_asks_once(self) -> None:
        self.sell(7)
        with patch.object(Client, "send_once", autospec=True, side_effect=Client.send_once) as send:
            shown = availability.available_all([self.item, "never seen", self.item])
            self.assertEqual(availability.available_all([self.item]), {self.item: 7})
        self.assertEqual(shown, {self.item: 7, "never seen": None})
        self.assertEqual(send.call_count, 1)

    def test_a_child_reads_although_its_parent_did_at_the_fork(self) -> None:
        self.sell(7)
        self.use(AVAILABILITY_SECONDS=0)
        availability.available(self.item)
        with availability._known.get()[self.item].reading:
            child = os.fork()
            if child == 0:
                found = None
                try:
                    found = eventually(lambda: availability.available(self.item))
                finally:
                    os._exit(found or 0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.assertEqual(status, 7)

    def test_the_last_unit_is_shown_to_the_basket_that_holds_it(self) -> None:
        self.sell(1)
        checkouts.let_go(self.reserve())
        self.assertEqual(availability.held_by(self.basket, self.item), 1)
        self.assertEqual(availability.held_by("another", self.item), 0)


class Pages(ServiceTest):
    def wait(self) -> tuple[int, str]:
        session = self.client.session
        session[SESSION_BASKET] = self.basket
        session.save()
        response = self.client.get("/stockade/wait/")
        return response.status_code, response.headers.get("Location", "")

    def test_the_waiting_page_follows_the_checkout(self) -> None:
        self.sell(1)
        self.assertEqual(self.wait(), (302, "/basket/"))
        checkout = self.reserve()
        self.assertEqual(self.wait(), (202, ""))
        checkouts.let_go(checkout)
        self.assertEqual(self.wait(), (302, "/preview/"))
        checkout = self.reserve()
        checkouts.charging(checkout)
        self.assertEqual(self.wait(), (202, ""))
        Checkout.objects.update(state=State.PLACED)
        self.assertEqual(self.wait(), (302, "/thanks/"))

    def test_the_waiting_page_asks_again_and_never_says_sold_out_by_itself(self) -> None:
        self.sell(1)
        self.without_service()
        with self.assertRaises(checkouts.Unknown):
            self.reserve()
        self.assertEqual(self.wait(), (202, ""))
        self.use()
        self.assertEqual(self.wait(), (302, "/preview/"))
        self.assertEqual(self.units()["held"], 1)

    def test_a_guest_is_no_session_key(self) -> None:
        request = RequestFactory().get("/")
        request.user, request.session = AnonymousUser(), self.client.session
        name = buyer_of(request)
        self.assertEqual(name, buyer_of(request))
        self.assertNotIn(request.session.session_key, name)

    def deliver(self, event: str, cart: str, secret: str) -> int:
        body = json.dumps(
            {
                "specversion": "1.0", "id": event, "source": "stockade", "subject": cart,
                "type": "stockade.cart.confirmed", "time": "2026-11-23T15:04:05Z",
                "datacontenttype": "application/json", "data": {"cart": cart, "orders": []},
            }
        )  # fmt: skip
        now = str(int(time.time()))
        tag = hmac.digest(
            base64.b64decode(secret), f"{event}.{now}.{body}".encode(), hashlib.sha256
        )
        headers = {
            "webhook-id": event,
            "webhook-timestamp": now,
            "webhook-signature": f"v1,{base64.b64encode(tag).decode()}",
        }
        return self.client.post(
            "/stockade/webhook/", body, content_type="application/json", headers=headers
        ).status_code

    def test_an_event_is_applied_once_and_only_if_stockade_has_signed_it(self) -> None:
        self.sell(1)
        checkout = self.reserve()
        self.place(checkout)
        secret, other = (base64.b64encode(os.urandom(24)).decode() for _ in range(2))
        self.assertEqual(self.deliver("1-1", checkout.cart, secret), 503)
        WebhookSecret.objects.create(url="https://shop.example", webhook="1", secret=secret)
        self.assertEqual(self.deliver("1-1", checkout.cart, other), 400)
        self.assertEqual(self.state(checkout), State.PLACED)
        self.assertEqual(self.deliver("1-1", checkout.cart, secret), 204)
        self.assertEqual(self.deliver("1-1", checkout.cart, secret), 204)
        self.assertEqual(TestShop.told, [("confirmed", "order-1")])
        self.assertEqual(HandledEvent.objects.count(), 1)


class Checks(TestCase):
    def found(self, **changes: object) -> list[str]:
        base = {"JWT_SECRET": "a", "PAYMENT_SECRET": "b", "ADMIN_TOKEN": "c"}
        values = base | {"SHOP": "tests.shop.TestShop"} | changes
        with override_settings(STOCKADE=values):
            return [message.id for message in checks.check_settings(None)]

    def test_the_checks_find_what_would_fail_at_the_first_sale(self) -> None:
        self.assertEqual(self.found(), [])
        self.assertEqual(self.found(JWT_SECRET=None), ["stockade.E001"])
        self.assertEqual(self.found(SHOP="tests.shop.Nothing"), ["stockade.E002"])
        self.assertEqual(self.found(SHOP="tests.shop.ShopItem"), ["stockade.E002"])
        self.assertEqual(self.found(PATIENCE_SECONDS=30), ["stockade.E004", "stockade.W001"])

    def test_atomic_requests_are_an_error(self) -> None:
        database = {"default": {"ATOMIC_REQUESTS": True}}
        with patch("django.conf.settings.DATABASES", database):
            self.assertEqual([message.id for message in checks._databases()], ["stockade.E003"])
