"""Makes Stockade sell what the shop's own table has."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection, transaction
from stockade import Refused
from stockade.client import Request
from stockade.transport import Response

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
    if there.stock == target.units:
        return f"{there.stock}, as before"
    try:
        status = _set_stock(name, target.units, there.version)
    except Refused as error:
        return f"{there.stock}, not {target.units}: {error.problem.code}"
    return f"{there.stock} -> {target.units}{' (units are moving)' if status == 202 else ''}"


def _set_stock(item: str, units: int, version: int | None) -> int:
    """The client has no call for it. After a change since `version` the next sync sees that."""
    request = Request(
        "PUT",
        f"/v1/items/{item}/stock",
        conf.get("ADMIN_TOKEN"),
        {"If-Match": f'"{version}"'},
        {"stock": units},
    )
    return conf.client(conf.JOB).send(request, _status)


def _status(response: Response) -> int:
    return response.status
