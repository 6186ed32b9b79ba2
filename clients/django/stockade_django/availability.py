"""The units of an item as a page shows them: seldom read, never waited for twice."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from stockade import Error

from . import conf
from .models import Checkout, State


@dataclass
class _Known:
    units: int | None = None
    since: float | None = None
    reading: threading.Lock = field(default_factory=threading.Lock)


_known: dict[str, _Known] = {}


def available(item: str) -> int | None:
    """Units that a buyer can get now, as far as is known. None: nothing was ever known.

    One thread reads, and the others show the last number meanwhile. If Stockade does not answer,
    the number stays: the checkout decides, and a catalogue must not wait for it.
    """
    known = _known.setdefault(item, _Known())
    age = float("inf") if known.since is None else time.monotonic() - known.since
    if age > conf.get("AVAILABILITY_SECONDS") and known.reading.acquire(blocking=False):
        try:
            found = conf.client(conf.GLANCE).item(item)
            known.units = found.available if found.state == "open" else 0
        except Error:
            pass
        finally:
            known.since = time.monotonic()
            known.reading.release()
    return known.units


def held_by(basket: object, item: str) -> int:
    """Units that this basket holds: the last unit must not look sold out to who has it."""
    live = Checkout.objects.filter(
        basket=str(basket), state__in=(State.PLACING, State.HELD, State.CHARGING)
    )
    return sum(units for checkout in live for name, units in checkout.lines if name == item)
