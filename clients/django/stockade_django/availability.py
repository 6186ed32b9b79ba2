"""The units of an item as a page shows them: seldom read, never waited for twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from stockade import Error
from stockade.processes import PerProcess

from . import conf
from .models import Checkout, State


@dataclass
class _Known:
    units: int | None = None
    since: float | None = None
    reading: threading.Lock = field(default_factory=threading.Lock)


#: Items of one request.
_ITEMS_MAX = 100

#: A thread of a parent may read at the moment of the fork, and its lock stays locked in the child.
_known: PerProcess[dict[str, _Known]] = PerProcess(dict)


def available(item: str) -> int | None:
    """Units that a buyer can get now, as far as is known. None: nothing was ever known.

    One thread reads, and the others show the last number meanwhile. If Stockade does not answer,
    the number stays: the checkout decides, and a catalogue must not wait for it.
    """
    return available_all([item])[item]


def available_all(items: Iterable[str]) -> dict[str, int | None]:
    """The same for the goods of a page, which one request reads, or one for each hundred."""
    names = list(dict.fromkeys(items))
    known = _known.get()
    _read(known, [name for name in names if _begins_to_read(known.setdefault(name, _Known()))])
    return {name: known[name].units for name in names}


def _begins_to_read(known: _Known) -> bool:
    age = float("inf") if known.since is None else time.monotonic() - known.since
    return age > conf.get("AVAILABILITY_SECONDS") and known.reading.acquire(blocking=False)


def _read(known: dict[str, _Known], names: list[str]) -> None:
    try:
        for first in range(0, len(names), _ITEMS_MAX):
            for item in conf.client(conf.GLANCE).items(names[first : first + _ITEMS_MAX]).data:
                known[item.id].units = item.available if item.state == "open" else 0
    except Error:
        # The others would wait as long.
        pass
    finally:
        for name in names:
            known[name].since = time.monotonic()
            known[name].reading.release()


def held_by(basket: object, item: str) -> int:
    """Units that this basket holds: the last unit must not look sold out to who has it."""
    live = Checkout.objects.filter(
        basket=str(basket), state__in=(State.PLACING, State.HELD, State.CHARGING)
    )
    return sum(units for checkout in live for name, units in checkout.lines if name == item)
