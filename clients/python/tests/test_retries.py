"""Retries and batches, against a server that answers by a script."""

import json
import threading
import unittest
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stockade import (
    Client,
    Contract,
    InvalidInput,
    NewCart,
    NewOrder,
    OrderBatcher,
    OutcomeUnknown,
    Refused,
    RetryPolicy,
)

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
    """Answers each request as the script says: status and body, or bytes as they are."""

    def __init__(self, *script) -> None:
        self.script, self.seen, self.lock = list(script), [], threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                owner.answer(self, json.loads(body))

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
        status, value = answer
        text = json.dumps(value).encode()
        handler.send_response(status)
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

    def test_the_deadline_ends_the_attempts(self) -> None:
        def place(retry: RetryPolicy) -> None:
            self.place((503, {"code": "unavailable"}), retry=retry)

        ends_at_the_deadline(self, 2, 1, place, lambda: len(self.keys))

    def test_pauses_double_up_to_the_longest_and_respect_retry_after(self) -> None:
        policy = RetryPolicy(deadline=30, pause=0.1, pause_max=1)
        for attempts, least, most in [(1, 0.05, 0.1), (2, 0.1, 0.2), (4, 0.4, 0.8), (99, 0.5, 1)]:
            self.assertTrue(least <= policy.pause_after(attempts, None) <= most)
        self.assertEqual(policy.pause_after(1, 1), 1)
        self.assertEqual(policy.pause_after(1, 60), 1)

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
) -> None:
    """The outcome is unknown after so many attempts or more. A busy machine needs a later deadline."""
    while True:
        with test.assertRaises(OutcomeUnknown) as raised:
            place(RetryPolicy(deadline=deadline, pause=deadline / 10, pause_max=deadline / 10))
        test.assertTrue(raised.exception.is_retryable)
        test.assertEqual(raised.exception.attempts, received())
        if received() >= attempts_min:
            return
        test.assertLess(deadline, 60, f"{received()} attempts")
        deadline *= 2


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
