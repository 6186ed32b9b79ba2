"""A real Stockade for the tests: `STOCKADE_BIN` names the program. Without it they are skipped."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import tomllib
import unittest
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.test import TestCase, override_settings
from django.utils import timezone
from stockade import Admin, Client, RetryPolicy

from stockade_django import availability, checkouts, conf
from stockade_django.models import Checkout
from tests.shop import TestShop

PROGRAM = os.environ.get("STOCKADE_BIN")
#: Seconds, longer than anything takes on a busy machine.
TIMEOUT = float(os.environ.get("STOCKADE_TEST_TIMEOUT", 120))


def eventually(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@unittest.skipUnless(PROGRAM, "no service: STOCKADE_BIN is not set")
class ServiceTest(TestCase):
    """Has a service, one item with a few units, and a shop that was told nothing yet."""

    folder: tempfile.TemporaryDirectory[str]
    process: subprocess.Popen[bytes]
    settings: dict[str, Any]
    admin: Admin

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        folder = Path(cls.folder.name)
        environment = {key: value for key, value in os.environ.items() if not key.endswith("_URL")}
        with (folder / "log").open("wb") as log:
            cls.process = subprocess.Popen(
                [str(PROGRAM), "up", "--dir", cls.folder.name, "--listen", "127.0.0.1:0"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )  # fmt: skip
        cls.addClassCleanup(cls._stop)
        url = eventually(lambda: cls._url(folder / "log"))
        run = tomllib.loads((folder / "run.toml").read_text())
        names = {"JWT_SECRET": "jwt_secret", "PAYMENT_SECRET": "payment_secret"}
        cls.settings = {
            **settings.STOCKADE,
            **{name: run[key] for name, key in names.items()},
            "ADMIN_TOKEN": run["admin_token"],
            "URLS": [url],
            "PATIENCE_SECONDS": TIMEOUT,
            "ATTEMPT_SECONDS": TIMEOUT,
        }
        cls.admin = Client(url, retry=RetryPolicy(deadline=TIMEOUT)).admin(run["admin_token"])

    @classmethod
    def _url(cls, log: Path) -> str | None:
        if cls.process.poll() is not None:
            raise AssertionError(log.read_text())
        ready = [line for line in log.read_text().splitlines() if line.startswith("ready ")]
        return ready[0].removeprefix("ready ") if ready else None

    @classmethod
    def _stop(cls) -> None:
        cls.process.terminate()
        cls.process.wait()

    def setUp(self) -> None:
        self.use()
        TestShop.told.clear()
        TestShop.stock.clear()
        availability._known.get().clear()
        self.item = f"item-{uuid.uuid4().hex[:8]}"
        self.basket = uuid.uuid4().hex

    def use(self, **changes: Any) -> None:
        """Changes settings until the test ends."""
        override = override_settings(STOCKADE=self.settings | changes)
        override.enable()
        self.addCleanup(override.disable)
        self.addCleanup(conf._client.cache_clear)
        conf._client.cache_clear()

    def without_service(self) -> None:
        """From now on no connection can be made."""
        url = f"http://127.0.0.1:{closed_port()}"
        self.use(URLS=[url], PATIENCE_SECONDS=0, ATTEMPT_SECONDS=1)

    def sell(self, units: int, **options: Any) -> None:
        self.admin.create_item(self.item, units, **options)

    def reserve(self, buyer: str = "ann", units: int = 1, basket: str | None = None) -> Checkout:
        found = checkouts.reserve(basket or self.basket, buyer, [(self.item, units)])
        assert found is not None
        return found

    def place(self, checkout: Checkout, order: str = "order-1") -> None:
        checkouts.charging(checkout)
        with transaction.atomic():
            checkouts.place(checkout, order)

    def end_lease(self, checkout: Checkout) -> None:
        """The worker has died: nothing ends its lease but time."""
        Checkout.objects.filter(pk=checkout.pk).update(lease_until=timezone.now())

    def state(self, checkout: Checkout) -> str:
        return Checkout.objects.get(pk=checkout.pk).state

    def units(self) -> dict[str, int]:
        found = self.admin.item(self.item)
        return {"held": found.held, "confirmed": found.confirmed}
