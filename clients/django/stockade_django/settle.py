"""Goes on with the checkouts that a crash, of the shop or of Stockade, has left open.

Any number of processes may settle at once: each takes a checkout before it works on it, and the
worker of before, if it is not dead after all, can change nothing any more.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from stockade import Refused

from . import checkouts, conf
from .models import OPEN, Checkout, State

logger = logging.getLogger("stockade")


def settle() -> int:
    """Goes on with each checkout that no worker owns; returns how many have moved."""
    return sum(_settle(checkout) for checkout in _free())


def _free() -> list[Checkout]:
    return list(
        Checkout.objects.filter(state__in=OPEN, lease_until__lte=timezone.now()).order_by("pk")
    )


def _settle(checkout: Checkout) -> bool:
    before = checkout.state
    if not _is_due(checkout) or not checkouts.take(checkout):
        return False
    try:
        _go_on(checkout)
    except Exception:  # One checkout must not keep the others from being settled.
        logger.exception("checkout %s: not settled", checkout.key)
        checkouts.let_go(checkout)
    checkout.refresh_from_db()
    return checkout.state != before


def _is_due(checkout: Checkout) -> bool:
    """A buyer may come back for a hold until it ends, and for a decision for a shorter time."""
    if checkout.state == State.HELD:
        return not checkout.holds_for(0)
    if checkout.state == State.PLACING:
        waited = timezone.now() - checkout.lease_until
        return waited > timedelta(seconds=conf.get("ABANDON_SECONDS"))
    return True


def _go_on(checkout: Checkout) -> None:
    if checkout.state in (State.PLACING, State.HELD, State.CHARGING):
        checkouts.move(checkout, [checkout.state], State.RELEASING)
    if checkout.state == State.RELEASING:
        checkouts.release(checkout, conf.JOB)
    elif checkout.state == State.PLACED:
        checkouts.report(checkout, conf.JOB)
    else:
        _give_back(checkout)


def _give_back(checkout: Checkout) -> None:
    """Returns the money first: who paid for a unit has it back before the unit is sold again."""
    if checkout.state == State.REFUND_DUE:
        conf.shop().refund(checkout)
        with transaction.atomic():
            if not checkouts.move(checkout, [State.REFUND_DUE], State.RETURNING):
                return
            conf.shop().cancelled(checkout)
    _note_refund(checkout)
    checkouts.move(checkout, [State.RETURNING], State.REFUNDED, lease_until=timezone.now())


def _note_refund(checkout: Checkout) -> None:
    """Tells Stockade that the money went back, for the cart or for a payment that no cart took."""
    admin = conf.admin()
    state = admin.cart(checkout.cart).state
    if state == "held":
        # The order was cancelled before its payment was reported.
        conf.buyer(checkout.buyer, conf.JOB).cancel_cart(checkout.cart)
    elif state != "refunded":
        try:
            admin.refund_cart(checkout.cart)
        except Refused as error:
            if not error.is_code("cart_not_refundable"):
                raise
            _note_payment(checkout.payment)


def _note_payment(payment: str) -> None:
    """The cart had ended before it was paid, so the payment alone is listed as due."""
    admin = conf.admin()
    for row in list(admin.refunds_due()):
        if row.payment == payment:
            admin.refund_done(row.id)
