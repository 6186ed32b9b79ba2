"""What cannot be a part of a request is `InvalidInput`, and is never sent."""

import unittest
from decimal import Decimal

from stockade import (
    BuyerOrder,
    CartPayment,
    Client,
    InvalidInput,
    NewCart,
    NewOrder,
    OrderBatcher,
    Payment,
    RetryPolicy,
    Webhook,
    mint_buyer,
    sign_payment,
)

ONE = Decimal("1")


class Input(unittest.TestCase):
    def setUp(self) -> None:
        # Nothing listens there: what is sent anyway is `OutcomeUnknown`.
        self.client = Client("http://127.0.0.1:1", retry=RetryPolicy.never())
        self.addCleanup(self.client.close)

    def refuses(self, **calls) -> None:
        """Each call names the field that is wrong; more calls with one wrong field have a list."""
        for field, all_calls in calls.items():
            for number, call in enumerate(all_calls):
                with self.subTest(f"{field} {number}"), self.assertRaises(InvalidInput) as raised:
                    call()
                self.assertEqual(raised.exception.field, field)

    def test_values_of_orders_and_carts(self) -> None:
        self.refuses(
            key=[
                lambda: NewOrder("vase", 1, 17),
                lambda: NewCart([("vase", 1)], None),
                lambda: BuyerOrder("ann", 1, b"key"),
            ],
            quantity=[
                lambda: NewOrder("vase", ONE),
                lambda: NewOrder("vase", "1"),
                lambda: NewOrder("vase", True),
                lambda: NewCart([("vase", 1.0)]),
                lambda: BuyerOrder("ann", None, "key"),
            ],
            item=[lambda: NewOrder(17), lambda: NewCart([(None, 1)])],
            amount=[
                lambda: NewOrder("vase", 1, amount=Decimal("19.99")),
                lambda: NewCart([("vase", 1)], amount=19.99),
                lambda: NewCart([("vase", 1)], amount="free"),
                lambda: BuyerOrder("ann", 1, "key", "1499"),
            ],
            lines=[lambda: NewCart(17), lambda: NewCart(["vase"]), lambda: NewCart([("vase",)])],
            buyer=[lambda: BuyerOrder(17, 1, "key")],
        )

    def test_values_of_payments(self) -> None:
        self.refuses(
            amount=[
                lambda: Payment("pay", "order", Decimal("19.99")),
                lambda: CartPayment("pay", "cart", 19.99),
            ],
            payment=[lambda: Payment(17, "order"), lambda: CartPayment(None, "cart")],
        )

    def test_values_of_calls(self) -> None:
        buyer, admin = self.client.buyer("token"), self.client.admin("token")
        self.refuses(
            order=[lambda: buyer.order(17), lambda: admin.cancel("\ud800")],
            seconds=[lambda: buyer.extend_hold("order", ONE)],
            session=[lambda: admin.extend_cart("cart", session=17)],
            units=[lambda: admin.add_stock("vase", ONE, "key")],
            key=[lambda: admin.withdraw_stock("vase", 1, 17)],
            stock=[lambda: admin.set_stock("vase", "7", 1)],
            version=[lambda: admin.set_stock("vase", 7, "1"), lambda: admin.set_stock("vase", 7, ONE)],
            wait=[lambda: admin.event_page(wait=ONE)],
            amount=[lambda: OrderBatcher(admin, "vase").order("ann", 1, "key", amount=ONE)],
            body=[
                lambda: admin.create_item("vase", ONE),
                lambda: admin.create_item("vase", 1, price=float("nan")),
                lambda: admin.patch_item("vase", opens_at=object()),
            ],
            buyer=[
                lambda: OrderBatcher(admin, "vase").order(17, 1, "key"),
                lambda: admin.place_cart(17, NewCart([("vase", 1)])),
            ],
        )

    def test_values_of_clients(self) -> None:
        self.refuses(
            token=[
                lambda: self.client.buyer(None),
                lambda: self.client.admin("a\r\nb"),
                lambda: self.client.buyer(""),
            ],
            secret=[lambda: self.client.payment_provider(17), lambda: sign_payment(None, b"")],
            url=[lambda: Client(17), lambda: Client("http://a:port"), lambda: Client("http://a:99999")],
            attempt_timeout=[lambda: Client("http://a", attempt_timeout=ONE)],
            deadline=[lambda: RetryPolicy(deadline="3"), lambda: RetryPolicy(deadline=-1)],
            secrets=[lambda: Webhook(), lambda: Webhook(17), lambda: Webhook("whsec_é")],
        )

    def test_a_buyer_whom_the_service_would_refuse_gets_no_token(self) -> None:
        for name in (17, None, "", ".", "..", "a\n", "\x7f", "é" * 65, "\ud800"):
            self.refuses(buyer=[lambda name=name: mint_buyer("secret", name)])
        self.refuses(
            secret=[lambda: mint_buyer(None, "ann")],
            lifetime=[lambda: mint_buyer("secret", "ann", lifetime=ONE)],
            iss=[lambda: mint_buyer("secret", "ann", issuer=17)],
            aud=[lambda: mint_buyer("secret", "ann", audience=["shop"])],
        )
        self.assertTrue(mint_buyer("secret", "é" * 64))


if __name__ == "__main__":
    unittest.main()
