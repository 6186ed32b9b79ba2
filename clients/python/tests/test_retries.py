"""Retries and batches, against a server that answers by a script."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import unittest
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

from stockade import (
    BuyerOrder,
    CartPayment,
    Client,
    Contract,
    InvalidInput,
    NewCart,
    NewOrder,
    NoLongerHeld,
    OrderBatcher,
    OutcomeUnknown,
    Payment,
    Refused,
    RetryPolicy,
)
from stockade.processes import PerProcess

HELD = {
    "id": "5e0c6a5c-0000-8000-8000-000000000000",
    "item": "vase",
    "quantity": 1,
    "state": "held",
    "price": 500,
    "amount": 500,
    "currency": "EUR",
    "version": 1,
    "expires_at": "2026-11-23T15:04:05.123456789Z",
    "a_later_field": True,
}
CART = {
    "id": "2d0f5c0b-53dc-8690-8a2b-6181b5fbc615",
    "state": "held",
    "lines": [
        {"item": "vase", "order": HELD["id"], "quantity": 3},
        {"item": "bowl", "order": HELD["id"], "quantity": 1},
    ],
    "amount": 950,
    "currency": "EUR",
    "expires_at": HELD["expires_at"],
}
#: A refusal from the sold-out cache of an instance, which knows nothing about other attempts.
SHED = {"code": "sold_out", "item": "vase", "final": False}
FAST = RetryPolicy(deadline=120, pause=0.001, pause_max=0.01)


class Server:
    """Answers each request as the script says: status, body and perhaps headers, or raw bytes."""

    def __init__(self, *script) -> None:
        self.script, self.seen, self.lock = list(script), [], threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two writes, and the second would wait for an acknowledgement: 40 ms.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                owner.answer(self, json.loads(body) if body else None)

            do_PUT = do_POST

            def do_DELETE(self) -> None:
                owner.answer(self, None)

            def do_GET(self) -> None:
                owner.answer(self, None)

            def log_message(self, *_) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    def answer(self, handler, body) -> None:
        with self.lock:
            self.seen.append((handler.headers.get("Idempotency-Key"), body))
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        answer = step(body) if callable(step) else step
        if isinstance(answer, bytes):
            handler.wfile.write(answer)
            handler.close_connection = True
            return
        status, value, *headers = answer
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        handler.send_response(status)
        kind = "problem+json" if status >= 400 else "json"
        more = headers[0] if headers else {}
        for name, content in {"Content-Type": f"application/{kind}", **more}.items():
            handler.send_header(name, content)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()


class Retries(unittest.TestCase):
    def place(self, *script, retry=FAST):
        with Server(*script) as server, Client(server.url, retry=retry) as client:
            order = NewOrder("vase", 1)
            try:
                return client.buyer("token").place(order)
            finally:
                self.keys = [key for key, _ in server.seen]
                self.assertEqual(set(self.keys), {order.key}, "every attempt has the same key")

    def test_an_unknown_outcome_is_repeated_with_the_same_key(self) -> None:
        head = b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n"
        script = [
            (503, {"code": "outcome_unknown"}),
            (502, "a proxy's page"),
            (408, {"code": "request_timeout"}),
            b"",
            head[:30],
            head + b"\r\n{",
            (201, HELD),
        ]
        placed = self.place(*script)
        self.assertEqual((placed.order.state, placed.recorded), ("held", True))
        self.assertEqual(len(self.keys), len(script))

    def test_a_refusal_and_a_defect_are_not_repeated(self) -> None:
        for answer, error in [
            ((409, {"code": "sold_out", "detail": "no unit is left"}), Refused),
            ((500, {"code": "internal"}), OutcomeUnknown),
            ((302, {}), Contract),
            ((201, {**HELD, "item": "jar"}), Contract),
            ((201, {**HELD, "quantity": 2}), Contract),
            ((201, {**HELD, "expires_at": "soon"}), Contract),
            ((201, {"id": "1"}), Contract),
            ((201, []), Contract),
        ]:
            with self.subTest(answer), self.assertRaises(error) as raised:
                self.place(answer)
            self.assertEqual(len(self.keys), 1)
            self.assertEqual(raised.exception.is_code("sold_out"), error is Refused)
            self.assertEqual(raised.exception.is_outcome_unknown, error is OutcomeUnknown)

    def test_an_order_or_a_cart_that_costs_something_else_is_not_the_one(self) -> None:
        line = {"item": "vase", "order": "o-1", "quantity": 1}
        cart = {**HELD, "lines": [line], "amount": 2494}
        unchecked = {**cart, "amount_check": "unchecked"}
        for amount, answer, fits in [
            (2494, cart, True),
            (1999, cart, False),
            (0, cart, False),
            ("unchecked", cart, False),
            ("unchecked", unchecked, True),
            (2494, unchecked, False),
            (None, cart, True),
        ]:
            with (
                self.subTest(amount=amount),
                Server((201, answer)) as server,
                Client(server.url, retry=FAST) as client,
            ):
                admin, buyer = client.admin("token"), client.buyer("token")
                calls = [lambda: admin.place_cart("ann", NewCart([("vase", 1)], "k", amount))]
                if amount != "unchecked" and answer is cart:
                    calls.append(lambda: buyer.place(NewOrder("vase", 1, "k", amount)))
                for call in calls:
                    if fits:
                        call()
                        continue
                    with self.assertRaises(Contract):
                        call()

    def test_the_deadline_ends_the_attempts(self) -> None:
        def place(retry: RetryPolicy) -> None:
            self.place((503, {"code": "unavailable"}), retry=retry)

        ends_at_the_deadline(self, 2, 1, place, lambda: len(self.keys))

    def test_an_attempt_has_one_limit_for_all_of_its_waits(self) -> None:
        over = threading.Event()

        def byte_by_byte(handler) -> None:
            """No wait for a byte is long, and the last bytes make it a success."""
            drips, text = 1200, json.dumps(HELD).encode()
            length = b"Content-Length: %d\r\n\r\n" % (drips + len(text))
            handler.wfile.write(b"HTTP/1.1 201 Created\r\n" + length)
            for _ in range(drips):
                handler.wfile.write(b" ")
                if over.wait(0.1):
                    return
            handler.wfile.write(text)

        class Drips(Server):
            def answer(self, handler, body) -> None:
                handler.close_connection = True
                with contextlib.suppress(OSError):
                    byte_by_byte(handler)

        with Drips((201, HELD)) as server:
            client = Client(server.url, retry=RetryPolicy.never(), attempt_timeout=0.5)
            with client, self.assertRaises(OutcomeUnknown) as raised:
                client.buyer("token").place(NewOrder("vase", 1))
            over.set()
        self.assertIsInstance(raised.exception.cause, TimeoutError)

    def test_a_call_fits_into_a_request_of_a_web_server_by_default(self) -> None:
        self.assertLess(Client("http://127.0.0.1:1").call_timeout, 10)
        own = Client("http://127.0.0.1:1", retry=RetryPolicy(deadline=2), attempt_timeout=0.5)
        self.assertEqual(own.call_timeout, 2.5)
        once = Client("http://127.0.0.1:1", retry=RetryPolicy.never(), attempt_timeout=3)
        self.assertEqual(once.call_timeout, 3)

    def test_a_repeat_has_what_is_left_and_a_second_at_least(self) -> None:
        timeouts, ends = [], [10.0, 700.0, 999.5, 1001.0]
        now = 0.0

        class Watched(Client):
            def send_once(self, request, timeout=None):
                nonlocal now
                timeouts.append(timeout)
                now = ends[len(timeouts) - 1]
                raise OutcomeUnknown(OSError("lost"))

        retry = RetryPolicy(deadline=1000, pause=0.001, pause_max=0.001)
        client = Watched("http://127.0.0.1:1", retry=retry, attempt_timeout=500)
        with mock.patch("stockade.client.time.monotonic", lambda: now):
            with self.assertRaises(OutcomeUnknown):
                client.buyer("token").place(NewOrder("vase", 1))
        self.assertEqual(timeouts, [500, 500, 300, 1])

    def test_pauses_double_up_to_the_longest_and_respect_retry_after(self) -> None:
        policy = RetryPolicy(deadline=30, pause=0.1, pause_max=1)
        for attempts, least, most in [(1, 0.05, 0.1), (2, 0.1, 0.2), (4, 0.4, 0.8), (99, 0.5, 1)]:
            self.assertTrue(least <= policy.pause_after(attempts, None) <= most)
        self.assertEqual(policy.pause_after(1, 1), 1)
        self.assertEqual(policy.pause_after(1, 60), 60, "the service knows better")

    def test_bad_input_is_never_sent(self) -> None:
        for key in ["", "a b", "é", "a\n", "x" * 256]:
            with self.subTest(key), self.assertRaises(InvalidInput):
                NewOrder("vase", 1, key)
        with self.assertRaises(InvalidInput):
            Client("127.0.0.1:8080")


def ends_at_the_deadline(
    test: unittest.TestCase,
    attempts_min: int,
    deadline: float,
    place: Callable[[RetryPolicy], None],
    received: Callable[[], int],
) -> OutcomeUnknown:
    """The outcome is unknown after so many attempts or more. A busy machine needs a later deadline."""
    while True:
        with test.assertRaises(OutcomeUnknown) as raised:
            place(RetryPolicy(deadline=deadline, pause=deadline / 10, pause_max=deadline / 10))
        test.assertTrue(raised.exception.is_retryable)
        test.assertEqual(raised.exception.attempts, received())
        if received() >= attempts_min:
            return raised.exception
        test.assertLess(deadline, 60, f"{received()} attempts")
        deadline *= 2


#: Answers that do not come from the decision on the key: of the service's own checks before it, of
#: a gateway with codes of its own, and of proxies with pages.
UNDECIDED = [
    (409, {"code": "sold_out"}, {"Content-Type": "application/json"}),
    (503, {"code": "unavailable"}, {"Content-Type": "application/json"}),
    (400, {"code": "invalid_request", "field": "quantity"}),
    (401, {"code": "unauthorized"}),
    (403, {"code": "forbidden"}),
    (404, {"code": "item_not_found"}),
    (404, {"message": "no Route matched with those values"}),
    (409, {"code": 409, "status": "Conflict"}),
    (409, {"code": "a_code_of_later"}),
    (409, b"<html>conflict</html>"),
    (429, {"code": "too_many_requests"}),
    (503, {"code": "unavailable"}),
    (429, b"slow down"),
    (302, b"<html>moved</html>"),
    (200, b"<html>please log in</html>"),
    (200, []),
]
#: What loses an attempt: it may have taken its units.
LOST = [
    (503, {"code": "unavailable"}, {"Content-Type": "application/json"}),
    b"",
    b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{",
    (502, b"<html>bad gateway</html>"),
    (503, {"code": "outcome_unknown"}),
    (504, {"message": "upstream timed out"}),
]


class LostAttempts(unittest.TestCase):
    """After an attempt whose answer was lost, only the service's decision on the key counts."""

    def place(self, *script, retry=FAST):
        with Server(*script) as server, Client(server.url, retry=retry) as client:
            try:
                return client.buyer("token").place(NewOrder("vase", 1))
            finally:
                self.sent = len(server.seen)

    def test_no_other_answer_hides_the_order_of_the_lost_attempt(self) -> None:
        for lost in LOST:
            with self.subTest(lost):
                placed = self.place(lost, *UNDECIDED, (201, HELD))
                self.assertEqual(placed.order.state, "held")
                self.assertEqual(self.sent, len(UNDECIDED) + 2)

    def test_the_outcome_stays_unknown_at_the_deadline(self) -> None:
        for answer in UNDECIDED:
            with self.subTest(answer):

                def place(retry: RetryPolicy, answer=answer) -> None:
                    self.place(b"", answer, retry=retry)

                error = ends_at_the_deadline(self, 2, 0.2, place, lambda: self.sent)
                self.assertTrue(error.may_have_run)

    def test_a_success_that_is_no_order_leaves_it_unknown(self) -> None:
        for answer in [(200, {"error": "please log in"}), (201, {**HELD, "item": "jar"})]:
            with self.subTest(answer):
                self.assertEqual(self.place(b"", answer, (201, HELD)).order.state, "held")
                self.assertEqual(self.sent, 3)

                def place(retry: RetryPolicy, answer=answer) -> None:
                    self.place(b"", answer, retry=retry)

                error = ends_at_the_deadline(self, 2, 0.2, place, lambda: self.sent)
                self.assertIsInstance(error.answer, Contract)
                with self.assertRaises(Contract):
                    self.place(answer)

    def test_a_proxys_page_leaves_a_lost_change_unknown(self) -> None:
        page = (200, {"error": "please log in"})
        order, cart = HELD["id"], CART["id"]
        for call in (
            lambda client: client.buyer("token").cancel(order),
            lambda client: client.buyer("token").extend_hold(order, 60),
            lambda client: client.buyer("token").cancel_cart(cart),
            lambda client: client.payment_provider("secret").report(Payment("pay-1", order)),
            lambda client: client.admin("token").refund(order),
            lambda client: client.admin("token").create_item("vase", 9),
            lambda client: client.admin("token").set_state("vase", "closed"),
            lambda client: client.admin("token").refund_done("7"),
            lambda client: client.admin("token").remove_webhook("7"),
        ):

            def send(retry: RetryPolicy, call=call) -> None:
                with Server(b"", page) as server, Client(server.url, retry=retry) as client:
                    try:
                        call(client)
                    finally:
                        self.sent = len(server.seen)

            error = ends_at_the_deadline(self, 2, 0.2, send, lambda: self.sent)
            self.assertIsInstance(error.answer, Contract)

    def test_a_lost_line_of_a_batch_says_nothing_about_the_others(self) -> None:
        lost = {"status": 503, "code": "outcome_unknown"}
        refused = {"status": 400, "code": "invalid_request"}
        orders = [BuyerOrder(buyer, 1, "key") for buyer in ("ann", "bob")]
        for lines, kinds in [
            ([lost, refused], [OutcomeUnknown, Refused]),
            ([refused, lost], [Refused, OutcomeUnknown]),
        ]:
            with Server((200, {"results": lines})) as server:
                with Client(server.url, retry=FAST) as client:
                    results = client.admin("token").place_batch("vase", orders)
            self.assertEqual([type(result) for result in results], kinds)

    def test_a_familiar_code_of_a_gateway_says_nothing(self) -> None:
        with self.assertRaises(OutcomeUnknown) as raised:
            self.place((503, {"code": "unavailable"}, GATEWAY), retry=RetryPolicy.never())
        self.assertTrue(raised.exception.may_have_run)
        self.assertEqual(raised.exception.problem.code, "")
        with self.assertRaises(Refused) as raised:
            self.place((409, {"code": "sold_out", "final": False}, GATEWAY))
        self.assertTrue(raised.exception.is_final and not raised.exception.settles_key)
        # A page in the place of a whole batch has no lines of the service.
        page = {"results": [{"status": 409, "code": "sold_out"}]}
        with Server((200, page, {"Content-Type": "text/html"})) as server:
            with Client(server.url, retry=FAST) as client:
                orders = [BuyerOrder("ann", 1, "key")]
                (result,) = client.admin("token").place_batch("vase", orders)
        self.assertFalse(result.settles_key)

    def test_final_counts_for_a_decision_only(self) -> None:
        with self.assertRaises(Refused) as raised:
            self.place((401, {"code": "unauthorized", "final": False}))
        self.assertTrue(raised.exception.is_final)

    def test_json_that_is_too_deep_is_no_answer(self) -> None:
        deep = b"[" * 100_000
        placed = self.place(b"", (200, deep), (409, deep), (201, HELD))
        self.assertEqual(placed.order.state, "held")

    def test_without_a_lost_attempt_nothing_may_have_run(self) -> None:
        with self.assertRaises(OutcomeUnknown) as raised:
            self.place((503, {"code": "unavailable"}), retry=RetryPolicy.never())
        self.assertFalse(raised.exception.may_have_run)

    def test_the_error_tells_what_came_later(self) -> None:
        refused = (401, {"code": "unauthorized"}, {"Retry-After": "600"})
        with self.assertRaises(OutcomeUnknown) as raised:
            self.place(b"", refused)
        error = raised.exception
        self.assertTrue(error.answer is not None and error.answer.is_code("unauthorized"))
        self.assertEqual((error.attempts, error.retry_after), (2, 600))
        self.assertIn("unauthorized", str(error))
        self.assertFalse(error.settles_key)

    def test_a_decision_settles_the_lost_attempt(self) -> None:
        for code in ("sold_out", "buyer_limit_reached", "not_open", "idempotency_key_reused"):
            for lost in LOST:
                with self.subTest((code, lost)), self.assertRaises(Refused) as raised:
                    self.place(lost, (401, {"code": "unauthorized"}), (409, {"code": code}))
                self.assertTrue(raised.exception.settles_key)
                self.assertEqual(self.sent, 3)

    def test_before_a_lost_attempt_a_refusal_is_one(self) -> None:
        for answer in UNDECIDED:
            if 400 <= answer[0] <= 499:
                with self.subTest(answer), self.assertRaises(Refused) as raised:
                    # The service says that nothing ran, so this attempt is not lost.
                    self.place((503, {"code": "unavailable"}), answer)
                self.assertFalse(raised.exception.settles_key)
                self.assertEqual(self.sent, 2)

    def test_a_lost_read_leaves_nothing_behind(self) -> None:
        with Server(b"", (404, {"code": "order_not_found"})) as server:
            with Client(server.url, retry=FAST) as client, self.assertRaises(Refused):
                client.buyer("token").order(HELD["id"])

    def test_the_lines_of_a_batch_share_its_lost_attempt(self) -> None:
        refused = {"status": 400, "code": "invalid_request"}
        sold_out = {"status": 409, "code": "sold_out"}
        answer = (200, {"results": [refused, sold_out, {**HELD, "status": 201}]})
        orders = [BuyerOrder(buyer, 1, "key") for buyer in ("ann", "bob", "cleo")]

        def place(*script):
            with Server(*script) as server, Client(server.url, retry=FAST) as client:
                return client.admin("token").place_batch("vase", orders)

        kinds = [type(result).__name__ for result in place(answer)]
        self.assertEqual(kinds, ["Refused", "Refused", "Placed"])
        kinds = [type(result).__name__ for result in place(b"", answer)]
        self.assertEqual(kinds, ["OutcomeUnknown", "Refused", "Placed"])

    def test_a_batcher_remembers_the_lost_attempt_of_an_order(self) -> None:
        def line(**result):
            return 200, {"results": [result]}

        lost = line(status=503, code="outcome_unknown")
        undecided = line(status=400, code="invalid_request")
        script = [lost, undecided, (401, b"<html>"), line(**HELD, status=201)]
        with Server(*script) as server, Client(server.url, retry=FAST) as client:
            placed = OrderBatcher(client.admin("token"), "vase").order("ann", 1, "key")
            self.assertEqual((placed.order.state, len(server.seen)), ("held", len(script)))


class Bodies(unittest.TestCase):
    """What the service has taken since the first version."""

    def sent(self, call) -> object:
        with Server((200, HELD)) as server, Client(server.url, retry=FAST) as client:
            call(client)
            return server.seen[0][1]

    def test_a_payment_may_name_its_currency(self) -> None:
        payment = Payment("pay-1", HELD["id"], 500, "EUR")
        body = self.sent(lambda client: client.payment_provider("secret").report(payment))
        wanted = {"payment": "pay-1", "order": HELD["id"], "amount": 500, "currency": "EUR"}
        self.assertEqual(body, wanted)

    def test_a_hold_is_extended_by_seconds_by_a_session_or_by_both(self) -> None:
        for hold in ({"seconds": 60}, {"session": "cs_1"}, {"seconds": 60, "session": "cs_1"}):

            def extend(client, hold=hold):
                client.buyer("token").extend_hold(HELD["id"], **hold)

            self.assertEqual(self.sent(extend), hold)


#: JSON of a gateway, whose codes are not the service's.
GATEWAY = {"Content-Type": "application/json"}


class Paths(unittest.TestCase):
    def test_a_name_cannot_escape_from_its_path_segment(self) -> None:
        # Nothing listens there: what is sent anyway is `OutcomeUnknown`.
        with Client("http://127.0.0.1:1", retry=RetryPolicy.never()) as client:
            buyer, admin = client.buyer("token"), client.admin("token")
            provider = client.payment_provider("secret")
            for name in ("", ".", ".."):
                for call in (
                    lambda: client.item(name),
                    lambda: buyer.place(NewOrder(name, 1)),
                    lambda: buyer.cancel(name),
                    lambda: buyer.cancel_cart(name),
                    lambda: provider.report(Payment("pay-1", name)),
                    lambda: provider.report_cart(CartPayment("pay-1", name)),
                    lambda: admin.place_batch(name, []),
                    lambda: next(admin.item_orders(name)),
                    lambda: admin.refund_done(name),
                    lambda: admin.remove_webhook(name),
                ):
                    with self.subTest(name), self.assertRaises(InvalidInput):
                        call()


class RetryAfter(unittest.TestCase):
    def test_a_pause_beyond_the_deadline_ends_the_attempts(self) -> None:
        answer = (503, {"code": "unavailable"}, {"Retry-After": "600"})
        with Server(answer) as server, Client(server.url, retry=FAST) as client:
            with self.assertRaises(OutcomeUnknown) as raised:
                client.buyer("token").place(NewOrder("vase", 1))
            self.assertEqual((len(server.seen), raised.exception.retry_after), (1, 600))

    def test_a_value_that_is_no_number_of_seconds_counts_for_nothing(self) -> None:
        for value in ("soon", "-1", "1.5", "9" * 5000):
            answer = (503, {"code": "unavailable"}, {"Retry-After": value})
            with self.subTest(value[:9]), Server(answer, (201, HELD)) as server:
                with Client(server.url, retry=FAST) as client:
                    client.buyer("token").place(NewOrder("vase", 1))


class Ended(unittest.TestCase):
    """A key whose order or cart has ended is no purchase."""

    def test_an_order_that_holds_nothing_is_not_returned(self) -> None:
        for state in ("cancelled", "expired", "refund_due", "refunded"):
            answer = (201, {**HELD, "state": state}, {"Idempotent-Replayed": "true"})
            with self.subTest(state), Server(b"", answer) as server:
                with Client(server.url, retry=FAST) as client:
                    with self.assertRaises(NoLongerHeld) as raised:
                        client.buyer("token").place(NewOrder("vase", 1))
            error = raised.exception
            self.assertEqual((error.order.id, error.state, error.cart), (HELD["id"], state, None))
            self.assertTrue(error.settles_key and not error.is_outcome_unknown)
            self.assertIn("new key", str(error))

    def test_a_cart_that_holds_nothing_is_not_returned(self) -> None:
        for state in ("cancelled", "expired", "refund_due", "refunded", "failed"):
            with self.subTest(state), Server((201, {**CART, "state": state})) as server:
                with Client(server.url, retry=FAST) as client:
                    with self.assertRaises(NoLongerHeld) as raised:
                        client.buyer("token").place_cart(NewCart([("vase", 3), ("bowl", 1)]))
            self.assertEqual((raised.exception.cart.id, raised.exception.state), (CART["id"], state))

    def test_a_paid_order_is_returned(self) -> None:
        paid = (201, {**HELD, "state": "confirmed"}, {"Idempotent-Replayed": "true"})
        with Server(paid) as server, Client(server.url, retry=FAST) as client:
            placed = client.buyer("token").place(NewOrder("vase", 1))
        self.assertTrue(placed.replayed and placed.order.has_units)

    def test_a_batch_tells_it_of_its_line(self) -> None:
        ended = {**HELD, "state": "expired", "status": 201, "replayed": True}
        with Server((200, {"results": [ended]})) as server:
            with Client(server.url, retry=FAST) as client:
                batcher = OrderBatcher(client.admin("token"), "vase")
                with self.assertRaises(NoLongerHeld):
                    batcher.order("ann", 1, "key")
                self.assertEqual(len(server.seen), 1)


class Versions(unittest.TestCase):
    ITEM = {
        "id": "vase",
        "title": "vase",
        "state": "open",
        **dict.fromkeys(("stock", "available", "held", "confirmed", "returning", "price"), 0),
        "sold_out": False,
        "currency": "EUR",
        "hold_seconds": 900,
        "max_hold_seconds": 900,
        "durability": "recorded",
    }

    def test_the_version_survives_a_proxy_that_compresses(self) -> None:
        for tag, version in [
            ('"3"', 3),
            ('W/"3"', 3),
            ('"3-gzip"', 3),
            ('"3;br"', 3),
            ('W/"x"', None),
            ('"9a"', None),
            ('"' + "9" * 5000 + '"', None),
        ]:
            with self.subTest(tag[:9]), Server((200, self.ITEM, {"ETag": tag})) as server:
                with Client(server.url, retry=FAST) as client:
                    self.assertEqual(client.admin("token").item("vase").version, version)


@unittest.skipUnless(hasattr(os, "fork"), "this system has no fork")
class Forks(unittest.TestCase):
    """A server that forks its workers may have used the client before."""

    def in_a_child(self, check: Callable[[], bool]) -> None:
        child = os.fork()
        if child == 0:
            passed = False
            try:
                passed = check()
            finally:
                os._exit(0 if passed else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_a_child_does_not_use_the_connections_of_its_parent(self) -> None:
        with Server((201, HELD)) as server, Client(server.url, retry=FAST) as client:
            idle = client._all[0]._idle

            def begins_anew() -> bool:
                mine = idle.get()
                return not mine.connections and mine.lock.acquire(timeout=0)

            client.buyer("token").place(NewOrder("vase", 1))
            self.assertEqual(len(idle.get().connections), 1)
            with idle.get().lock:  # Another thread is inside at that moment.
                self.in_a_child(begins_anew)
            self.assertEqual(len(idle.get().connections), 1, "the parent keeps its own")

    def test_a_batcher_whose_requests_are_under_way_works_in_a_child(self) -> None:
        begun, done = threading.Event(), threading.Event()

        def slow(_):
            begun.set()
            done.wait()
            return 200, {"results": [{**HELD, "status": 201}]}

        quick = (200, {"results": [{**HELD, "status": 201}]})
        with Server(slow, quick) as server, Client(server.url, retry=FAST) as client:
            batcher = OrderBatcher(client.admin("token"), "vase", flights=1)
            future = batcher.submit("ann", 1, "key-0")
            begun.wait()
            self.in_a_child(lambda: batcher.order("bob", 1, "key-1").order.state == "held")
            done.set()
            self.assertEqual(future.result().order.state, "held")

    def test_a_thread_that_is_late_after_a_fork_does_not_end_the_value_of_another(self) -> None:
        ended: list[int] = []
        owned = PerProcess(itertools.count().__next__, ended.append)
        saw_the_parents, another_has_its_own = threading.Event(), threading.Event()

        def getpid() -> int:
            if threading.current_thread() is late and not saw_the_parents.is_set():
                saw_the_parents.set()
                another_has_its_own.wait()
            return -1  # As in a child.

        late = threading.Thread(target=owned.get)
        with mock.patch("os.getpid", getpid):
            late.start()
            saw_the_parents.wait()
            self.assertEqual(owned.get(), 1)
            another_has_its_own.set()
            late.join()
        self.assertEqual(ended, [0, 0])

    def test_a_fork_that_calls_no_hook_of_python_separates_the_processes_too(self) -> None:
        # Alone in its process: such a fork is safe only where Python has one thread.
        with Server((201, HELD)) as server:
            done = subprocess.run([sys.executable, "-c", FORKS_IN_C, server.url], timeout=120)
        self.assertEqual(done.returncode, 0)


#: uWSGI forks its workers in C.
FORKS_IN_C = """
import ctypes, os, sys
from stockade import Client, NewOrder

client = Client(sys.argv[1])
client.buyer("token").place(NewOrder("vase", 1))
idle = client._all[0]._idle
mine = idle.get()
assert len(mine.connections) == 1
mine.lock.acquire()
if (child := ctypes.PyDLL(None).fork()) == 0:
    separate = idle.get() is not mine and not idle.get().connections
    client.buyer("token").place(NewOrder("vase", 1))
    os._exit(0 if separate else 1)
assert idle.get() is mine
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Carts(unittest.TestCase):
    def place(self, *script, retry=FAST):
        with Server(*script) as server, Client(server.url, retry=retry) as client:
            cart = NewCart([("vase", 2), ("bowl", 1), ("vase", 1)])
            try:
                return client.buyer("token").place_cart(cart)
            finally:
                self.seen = server.seen
                self.assertEqual({key for key, _ in self.seen}, {cart.key})

    def test_an_unknown_outcome_is_repeated_with_the_same_key_and_lines(self) -> None:
        script = [(503, {"code": "outcome_unknown"}), (502, "a proxy's page"), b"", (201, CART)]
        placed = self.place(*script)
        self.assertEqual((placed.cart.state, placed.cart.lines[0].quantity), ("held", 3))
        self.assertEqual(len(self.seen), len(script))
        lines = [("vase", 2), ("bowl", 1), ("vase", 1)]
        body = {"lines": [{"item": item, "quantity": units} for item, units in lines]}
        self.assertTrue(all(sent == body for _, sent in self.seen))

    def test_a_refusal_that_is_not_final_does_not_hide_the_cart_of_an_earlier_attempt(self) -> None:
        unknown, shed = (503, {"code": "outcome_unknown"}), (409, SHED)
        self.assertEqual(self.place(unknown, shed, b"", shed, (201, CART)).cart.state, "held")
        self.assertEqual(len(self.seen), 5)
        with self.assertRaises(Refused) as refused:
            self.place(shed)
        self.assertFalse(refused.exception.is_final)
        self.assertEqual(len(self.seen), 1)

        def place(retry: RetryPolicy) -> None:
            self.place(unknown, shed, retry=retry)

        ends_at_the_deadline(self, 3, 0.2, place, lambda: len(self.seen))

    def test_a_refusal_and_another_cart_are_not_repeated(self) -> None:
        def with_lines(*units):
            pairs = zip(CART["lines"], units, strict=False)
            return {**CART, "lines": [{**line, "quantity": count} for line, count in pairs]}

        for answer, error in [
            ((409, {"code": "sold_out", "item": "bowl"}), Refused),
            ((500, {"code": "internal"}), OutcomeUnknown),
            ((201, with_lines(3, 2)), Contract),
            ((201, with_lines(3)), Contract),
            ((201, {**CART, "lines": None}), Contract),
            ((201, []), Contract),
        ]:
            with self.subTest(answer), self.assertRaises(error) as raised:
                self.place(answer)
            self.assertEqual(len(self.seen), 1)
            if error is Refused:
                self.assertEqual(raised.exception.problem.item, "bowl")


class Batches(unittest.TestCase):
    def test_orders_that_wait_travel_together_and_only_the_unknown_ones_again(self) -> None:
        first, both = threading.Event(), threading.Event()

        def results(body):
            return [{**HELD, "status": 201} for _ in body["orders"]]

        def slow(body):
            first.set()
            both.wait(5)
            return 200, {"results": results(body)}

        def mixed(body):
            answers = results(body)
            answers[1] = {"status": 503, "code": "outcome_unknown"}
            answers[2] = {"status": 409, "code": "sold_out"}
            return 200, {"results": answers}

        last = lambda body: (200, {"results": results(body)})  # noqa: E731
        with Server(slow, mixed, last) as server, Client(server.url, retry=FAST) as client:
            batcher = OrderBatcher(client.admin("token"), "vase", flights=1)
            futures = [batcher.submit("ann", 1, "key-0")]
            first.wait(5)
            futures += [batcher.submit("ann", 1, f"key-{key}") for key in range(1, 6)]
            both.set()
            self.assertTrue(futures[3].exception(5).is_code("sold_out"))
            for place in (0, 1, 2, 4, 5):
                self.assertEqual(futures[place].result(5).order.state, "held")
            sent = [[line["key"] for line in body["orders"]] for _, body in server.seen]
        self.assertEqual(sent, [["key-0"], [f"key-{key}" for key in range(1, 6)], ["key-2"]])


if __name__ == "__main__":
    unittest.main()
