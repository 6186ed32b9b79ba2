"""Makes Stockade sell what the shop's own table has."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection, transaction
from stockade import Item, Refused

from . import conf
from .models import ALLOCATED, Checkout
from .shop import ShopItem


@dataclass(frozen=True)
class _Target:
    item: ShopItem
    units: int


def sync() -> dict[str, str]:
    """Creates the items that are missing and sets the stock of the others; says what it did."""
    return {target.item.item: _sync(target) for target in _targets()}


def _targets() -> list[_Target]:
    """Stockade counts sold units as stock, and a shop forgets them when they are shipped.

    The units that are unsold and those of the checkouts must be of one moment: an order moves some
    from the first number to the second.
    """
    with transaction.atomic(durable=True):
        if connection.vendor == "postgresql":
            with connection.cursor() as sql:
                sql.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        items = list(conf.shop().items())
        placed = _placed()
    return [_Target(item, max(0, item.unsold + placed.get(item.item, 0))) for item in items]


def _placed() -> dict[str, int]:
    found: dict[str, int] = {}
    for lines in Checkout.objects.filter(state__in=ALLOCATED).values_list("lines", flat=True):
        for item, units in lines:
            found[item] = found.get(item, 0) + units
    return found


def _sync(target: _Target) -> str:
    name, admin = target.item.item, conf.admin()
    try:
        there = admin.item(name)
    except Refused as error:
        if not error.is_code("item_not_found"):
            raise
        admin.create_item(name, target.units, **target.item.options)
        return f"created with {target.units}"
    return _set_stock(target, there)


def _set_stock(target: _Target, there: Item) -> str:
    """Changes nothing if the item has changed since it was read: the next sync sees it as it is."""
    if there.stock == target.units:
        return f"{there.stock}, as before"
    try:
        changed = conf.admin().set_stock(there.id, target.units, there.version or 0)
    except Refused as error:
        return f"{there.stock}, not {target.units}: {error.problem.code}"
    return f"{there.stock} -> {target.units}{' (units are moving)' if changed.pending else ''}"
