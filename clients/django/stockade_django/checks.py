"""What `manage.py check` finds before the first buyer does."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.utils.module_loading import import_string

from . import conf
from .shop import Shop


@register()
def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    return [*_secrets(), *_shop(), *_databases(), *_times()]


def _secrets() -> list[CheckMessage]:
    names = ("JWT_SECRET", "PAYMENT_SECRET", "ADMIN_TOKEN")
    return [
        Error(f"STOCKADE[{name!r}] is not set", id="stockade.E001")
        for name in names
        if not conf.get(name)
    ]


def _shop() -> list[CheckMessage]:
    try:
        shop = import_string(conf.get("SHOP") or "")
    except ImportError as error:
        return [Error(f"STOCKADE['SHOP'] cannot be imported: {error}", id="stockade.E002")]
    if isinstance(shop, type) and issubclass(shop, Shop):
        return []
    return [Error("STOCKADE['SHOP'] is no stockade_django.shop.Shop", id="stockade.E002")]


def _databases() -> list[CheckMessage]:
    return [
        Error(
            f"ATOMIC_REQUESTS of {alias!r} would roll back a key whose request has left",
            hint="Turn it off, or decorate the checkout with transaction.non_atomic_requests.",
            id="stockade.E003",
        )
        for alias, database in settings.DATABASES.items()
        if database.get("ATOMIC_REQUESTS")
    ]


def _times() -> list[CheckMessage]:
    # A page holds, and reports, each for as long as a call may last.
    longest = 2 * (conf.get("PATIENCE_SECONDS") + conf.get("ATTEMPT_SECONDS"))
    found: list[CheckMessage] = []
    if longest >= conf.get("WEB_TIMEOUT_SECONDS"):
        found.append(
            Error(
                f"a checkout may wait {longest:g} s for Stockade, longer than its web server does",
                hint="Lower PATIENCE_SECONDS and ATTEMPT_SECONDS.",
                id="stockade.E004",
            )
        )
    if conf.get("LEASE_SECONDS") <= longest:
        found.append(
            Warning(
                "LEASE_SECONDS is shorter than the calls of a page: its checkouts are taken over",
                id="stockade.W001",
            )
        )
    return found
