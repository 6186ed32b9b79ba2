"""`STOCKADE` of the Django settings, and the client of this process."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.module_loading import import_string
from stockade import Admin, Buyer, Client, PaymentProvider, RetryPolicy, mint_buyer

if TYPE_CHECKING:
    from .shop import Shop

DEFAULTS: dict[str, Any] = {
    "URLS": ["http://127.0.0.1:8080"],
    "JWT_SECRET": None,  # STOCKADE_JWT_SECRET: signs the tokens of the buyers
    "PAYMENT_SECRET": None,  # STOCKADE_PAYMENT_SECRET: signs the reports of payments
    # An admin with the scopes read and refunds:write; the sync of the stock needs items:write and
    # stock:write too, and the command for webhooks webhooks:write.
    "ADMIN_TOKEN": None,
    "SHOP": None,  # the path of a subclass of stockade_django.shop.Shop
    "KEY_PREFIX": "shop",  # of keys and payment references; two shops at one Stockade need two
    "PATIENCE_SECONDS": 3.0,  # how long a page repeats a request whose outcome is unknown
    "ATTEMPT_SECONDS": 2.0,  # and how long one attempt of it may take
    "WEB_TIMEOUT_SECONDS": 30.0,  # after which the web server gives a request up
    "LEASE_SECONDS": 30.0,  # how long a page owns a checkout, before `settle` takes it over
    "ABANDON_SECONDS": 120.0,  # after which a hold that no page asks for any more is given up
    "AVAILABILITY_SECONDS": 0.5,  # how old the units that a page shows may be
}

#: How a client waits: a page for a buyer, a catalogue that has something else to show, a job.
PAGE, GLANCE, JOB = "page", "glance", "job"


def get(name: str) -> Any:
    return getattr(settings, "STOCKADE", {}).get(name, DEFAULTS[name])


def client(kind: str = PAGE) -> Client:
    """The client of this process. A forked worker makes its own."""
    return _client(os.getpid(), kind)


@lru_cache(maxsize=8)
def _client(_pid: int, kind: str) -> Client:
    if kind == GLANCE:
        return Client(*get("URLS"), retry=RetryPolicy.never(), attempt_timeout=0.5)
    deadline = get("PATIENCE_SECONDS") if kind == PAGE else 10.0
    retry = RetryPolicy(deadline=deadline, pause=0.05, pause_max=0.5)
    return Client(*get("URLS"), retry=retry, attempt_timeout=get("ATTEMPT_SECONDS"))


def buyer(name: str, kind: str = PAGE) -> Buyer:
    return client(kind).buyer(mint_buyer(get("JWT_SECRET"), name, lifetime=60))


def admin() -> Admin:
    return client(JOB).admin(get("ADMIN_TOKEN"))


def provider(kind: str = PAGE) -> PaymentProvider:
    return client(kind).payment_provider(get("PAYMENT_SECRET"))


@lru_cache(maxsize=1)
def shop() -> Shop:
    return import_string(get("SHOP"))()
