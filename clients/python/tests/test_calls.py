"""Every call of the API is in the client, and nothing else: both are held against the description.

Each public method is called. What it sends is looked up in the description by method and path.
"""

import inspect
import json
import re
import unittest
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

from stockade import (
    Admin,
    Buyer,
    BuyerOrder,
    CartPayment,
    Client,
    NewCart,
    NewOrder,
    OrderBatcher,
    Payment,
    PaymentProvider,
    Refused,
    RetryPolicy,
)

DESCRIPTION = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text())
#: No calls of a shop: probes and Prometheus send them, and Stripe signs its events itself.
NOT_OF_A_CLIENT = {"getHealth", "getReadiness", "getMetrics", "receiveStripeEvent"}
#: A value for each parameter of a method, by its name. Others have defaults.
VALUES = {
    "item": "vase",
    "items": ["vase", "jar"],
    "order": "o-1",
    "orders": [BuyerOrder("ann", 1, "key-1", 1499)],
    "cart": "c-1",
    "payment": Payment("pay-1", "o-1", 500, "EUR"),
    "buyer": "ann",
    "key": "key-1",
    "row": "r-1",
    "seconds": 60,
    "session": "cs-1",
    "state": "open",
    "stock": 7,
    "units": 7,
    "version": 3,
    "webhook": "w-1",
    "kinds": ["order.held"],
    "after": "cursor",
    "wait": 0,
    "full": True,
    "changes": {
        "limit_per_buyer": 2,
        "opens_at": None,
        "closes_at": None,
        "waves": None,
        "price": 450,
    },
    "options": {"price": 500},
}
#: Where the name alone does not tell.
SPECIAL = {
    ("Buyer", "place"): {"order": NewOrder("vase", 1, "key-1", 2494)},
    ("Buyer", "place_cart"): {"cart": NewCart([("vase", 1)], "key-1", 2494)},
    ("Admin", "place_cart"): {"cart": NewCart([("vase", 1)], "key-1", "unchecked")},
    ("PaymentProvider", "report_cart"): {"payment": CartPayment("pay-1", "c-1", 500, "EUR")},
    ("Admin", "create_webhook"): {"url": "https://shop.example/hook"},
}
#: Who calls: the scheme in the description, or the header.
CALLERS = {Buyer: "buyer", Admin: "admin", PaymentProvider: "Stockade-Signature", Client: None}
#: Methods that call nothing.
QUIET = {"close", "buyer", "admin", "payment_provider", "send", "send_as", "send_once"}


class Recorder:
    """Refuses every request, and remembers what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple] = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two writes, and the second would wait for an acknowledgement: 40 ms.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                recorder.sent.append((self.command, self.path, self.headers, body))
                answer = b'{"code":"forbidden"}'
                self.send_response(403)
                self.send_header("Content-Type", "application/problem+json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_PATCH = do_DELETE = do_POST

            def log_message(self, *_) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def operations() -> dict[str, tuple[str, str, dict]]:
    """The operations of the description by their id: the method, the path and what it says."""
    found = {}
    for path, methods in DESCRIPTION["paths"].items():
        for method, operation in methods.items():
            found[operation["operationId"]] = (method.upper(), path, operation)
    return {name: found[name] for name in found if name not in NOT_OF_A_CLIENT}


def methods(kind: type) -> list[str]:
    """The public methods of a class that call the service."""
    public = inspect.getmembers(kind, inspect.isfunction)
    return [name for name, _ in public if not name.startswith("_") and name not in QUIET]


def operation_of(method: str, path: str) -> str | None:
    """The operation that a request is. A fixed segment of a path wins over a name."""
    fitting = []
    for name, (known, template, _) in operations().items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if known == method and re.fullmatch(pattern, path):
            fitting.append((template.count("{"), name))
    return min(fitting)[1] if fitting else None


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.recorder = Recorder()
        cls.addClassCleanup(cls.recorder.close)
        client = Client(cls.recorder.url, retry=RetryPolicy.never(), attempt_timeout=120)
        cls.addClassCleanup(client.close)
        provider = client.payment_provider("secret")
        cls.callers = [client, client.buyer("token"), client.admin("token"), provider]

    def call(self, caller: object, name: str) -> tuple:
        """Calls a method with everything that it takes; returns what was sent."""
        self.recorder.sent.clear()
        method = getattr(caller, name)
        special = SPECIAL.get((type(caller).__name__, name), {})
        values = {}
        for parameter in inspect.signature(method).parameters.values():
            if parameter.name in special or parameter.name in VALUES:
                value = special.get(parameter.name, VALUES.get(parameter.name))
                is_open = parameter.kind is inspect.Parameter.VAR_KEYWORD
                values |= value if is_open else {parameter.name: value}
        with self.assertRaises(Refused):
            result = method(**values)
            self.assertIsInstance(result, Iterator)
            next(result)
        self.assertEqual(len(self.recorder.sent), 1)
        return self.recorder.sent[0]

    def test_every_operation_has_a_method_for_each_of_its_callers(self) -> None:
        expected = {
            (name, caller)
            for name, (_, _, operation) in operations().items()
            for caller in callers_of(operation)
        }
        found = set()
        for caller in self.callers:
            for name in methods(type(caller)):
                method, url, _, _ = self.call(caller, name)
                operation = operation_of(method, urlsplit(url).path)
                self.assertIsNotNone(operation, f"{name} sends {method} {url}, which is no call")
                found.add((operation, CALLERS[type(caller)]))
        # An admin reads an item as well, and sees more.
        self.assertEqual(found - {("getItem", "admin")}, expected)

    def test_what_a_method_sends_is_what_the_description_wants(self) -> None:
        for caller in self.callers:
            for name in methods(type(caller)):
                with self.subTest(f"{type(caller).__name__}.{name}"):
                    self.fits(*self.call(caller, name))

    def fits(self, method: str, url: str, headers, body: bytes) -> None:
        _, _, operation = operations()[operation_of(method, urlsplit(url).path)]
        parameters = operation.get("parameters", [])
        query = {one["name"] for one in parameters if one["in"] == "query"}
        self.assertLessEqual(set(parse_qs(urlsplit(url).query)), query)
        for one in parameters:
            if one["in"] == "header" and one.get("required"):
                self.assertIn(one["name"], headers)
        known = {one["name"].lower() for one in parameters if one["in"] == "header"}
        ours = {name.lower() for name in headers} & {"idempotency-key", "if-match"}
        self.assertLessEqual(ours, known)
        self.body_fits(operation, body)

    def body_fits(self, operation: dict, body: bytes) -> None:
        content = operation.get("requestBody", {}).get("content", {})
        if not content:
            return self.assertEqual(body, b"")
        reference = content["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
        schema, sent = DESCRIPTION["components"]["schemas"][reference], json.loads(body)
        self.assertLessEqual(set(sent), set(schema["properties"]))
        self.assertLessEqual(set(schema.get("required", [])), set(sent))

    def test_what_a_placement_can_say_is_what_the_description_has(self) -> None:
        sent: dict[str, set[str]] = {}
        for caller in self.callers:
            for name in methods(type(caller)):
                method, url, _, body = self.call(caller, name)
                operation = operation_of(method, urlsplit(url).path)
                if operation in ("placeOrder", "placeOrders", "placeCart"):
                    sent.setdefault(operation, set()).update(names(json.loads(body)))
        schemas = DESCRIPTION["components"]["schemas"]
        of = {name: set(schemas[name]["properties"]) for name in schemas if name.startswith("New")}
        self.assertEqual(
            sent,
            {
                "placeOrder": of["NewOrder"],
                "placeOrders": of["NewOrders"] | of["NewLine"],
                "placeCart": of["NewCart"] | of["NewCartLine"],
            },
        )

    def test_what_is_no_call_of_a_client_is_in_the_description(self) -> None:
        all_ids = {
            operation["operationId"]
            for path in DESCRIPTION["paths"].values()
            for operation in path.values()
        }
        self.assertLessEqual(NOT_OF_A_CLIENT, all_ids)

    def test_a_batcher_sends_batches(self) -> None:
        self.recorder.sent.clear()
        with self.assertRaises(Refused):
            OrderBatcher(self.callers[2], "vase").order("ann", 1, "key-1")
        method, url, _, _ = self.recorder.sent[0]
        self.assertEqual(operation_of(method, url), "placeOrders")


def names(body: object) -> set[str]:
    """The names of all fields of a body, also of those in its lines."""
    if isinstance(body, list):
        return set().union(*map(names, body))
    return set(body).union(*map(names, body.values())) if isinstance(body, dict) else set()


def callers_of(operation: dict) -> set[str | None]:
    """The schemes of which each is enough, the header that proves a provider, or nobody."""
    schemes = {name for scheme in operation.get("security", []) for name in scheme}
    headers = {one["name"] for one in operation.get("parameters", []) if one["in"] == "header"}
    return schemes or (headers & {"Stockade-Signature"}) or {None}


if __name__ == "__main__":
    unittest.main()
