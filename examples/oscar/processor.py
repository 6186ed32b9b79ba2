"""A card processor in small: charges once for each reference, and returns money.

    python3 processor.py --listen 127.0.0.1:8092 --delay 0.1

`POST /charge` answers 402 for the card `declined`, and 409 for a reference whose money went back:
a charge that comes after its refund must not count. `GET /charges` lists what has moved, and
`POST /delay` changes how long an answer takes: so many seconds, or until so many requests wait.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Ledger:
    """The charges by reference: `charged`, `returned`, or `void` if there was none to return."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._charges: dict[str, dict[str, Any]] = {}

    def charge(self, reference: str, amount: str, card: str) -> tuple[int, dict[str, Any]]:
        with self._lock:
            known = self._charges.get(reference)
            if known:
                return (200 if known["state"] == "charged" else 409), known
            if card == "declined":
                return 402, {"state": "declined"}
            made = {"reference": reference, "amount": amount, "state": "charged", "at": time.time()}
            self._charges[reference] = made
            return 200, made

    def refund(self, reference: str) -> tuple[int, dict[str, Any]]:
        with self._lock:
            known = self._charges.setdefault(reference, {"reference": reference, "state": "void"})
            if known["state"] == "charged":
                known["state"] = "returned"
            return 200, known

    def all(self) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._charges.values())


class Delay:
    """How long an answer takes. With a crowd, it comes at once from when so many have waited."""

    def __init__(self, seconds: float, crowd: int = 0) -> None:
        self._seconds, self._missing = seconds, crowd
        self._lock, self._met = threading.Lock(), threading.Event()

    def wait(self) -> None:
        with self._lock:
            self._missing -= 1
            if self._missing == 0:
                self._met.set()
        self._met.wait(self._seconds)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ledger = Ledger()
    delay = Delay(0)

    def do_GET(self) -> None:
        self.answer(200, self.ledger.all())

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/delay":
            Handler.delay = Delay(float(asked["seconds"]), int(asked.get("crowd", 0)))
            return self.answer(200, asked)
        self.delay.wait()
        if self.path == "/charge":
            self.answer(*self.ledger.charge(asked["reference"], asked["amount"], asked["card"]))
        else:
            self.answer(*self.ledger.refund(asked["reference"]))

    def answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    # The default queue of 5 connections resets those of a crowd.
    request_queue_size = 256
    daemon_threads = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:8092")
    parser.add_argument("--delay", type=float, default=0.3, metavar="SECONDS")
    options = parser.parse_args()
    Handler.delay = Delay(options.delay)
    host, port = options.listen.rsplit(":", 1)
    server = Server((host, int(port)), Handler)
    print(f"ready http://{host}:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
