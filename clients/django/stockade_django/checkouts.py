"""The steps of one checkout: reserve, charging, place, report; or abandon.

A worker owns a checkout for `LEASE_SECONDS`. Each step moves the checkout only if the worker still
owns it and it is where the worker believes, so `settle` can take it over from a worker that only
seems dead. No step holds a transaction open while it waits for Stockade.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from stockade import Cart, CartPayment, Error, NewCart, NoLongerHeld, OutcomeUnknown, Refused

from . import conf
from .models import ENDED, Checkout, State

logger = logging.getLogger("stockade")

Lines = list[list[Any]]

#: Seconds for which a lost request may still take units: twice STOCKADE_ORDER_TIMEOUT_MS.
_LATE_SECONDS = 10.0


class Busy(Exception):
    """Another request works on this basket, or `settle` does."""


class Unknown(Exception):
    """Nothing is decided yet: keep the key, show the waiting page, and ask again."""


class NotHeld(Exception):
    """Stockade has decided: the buyer has no units. `code` is the reason."""

    def __init__(self, code: str, item: str | None = None) -> None:
        super().__init__(code)
        self.code, self.item = code, item


class Lost(Exception):
    """`settle` has taken the checkout over: nothing may be charged or placed with it."""


def reserve(basket: object, buyer: str, lines: Iterable[tuple[str, int]]) -> Checkout | None:
    """Holds the units of all lines for the buyer. None: there are no lines.

    Raises `Busy`, `Unknown` or `NotHeld`. Call it outside of a transaction.
    """
    for _ in range(2):
        checkout = begin(str(basket), buyer, sum_lines(lines))
        if checkout is None:
            return None
        try:
            hold(checkout)
            return checkout
        except NoLongerHeld:
            continue  # An earlier attempt had ended unnoticed, and the next has a new key.
    raise Busy(str(basket))


def sum_lines(lines: Iterable[tuple[str, int]]) -> Lines:
    """The lines as they are stored: each item once, in the same order each time."""
    found: dict[str, int] = {}
    for item, units in lines:
        found[item] = found.get(item, 0) + units
    return sorted([item, units] for item, units in found.items())


def begin(basket: str, buyer: str, lines: Lines) -> Checkout | None:
    """Commits the attempt that this request works on."""
    stale: Checkout | None = None
    try:
        with transaction.atomic(durable=True):
            last = Checkout.objects.filter(basket=basket).order_by("-attempt").first()
            if last and last.state not in (*ENDED, State.RETURNING, State.REFUNDED):
                if last.state not in (State.PLACING, State.HELD) or not take(last):
                    raise Busy(last.key)
                if _goes_on(last, buyer, lines):
                    return last
                move(last, [last.state], State.RELEASING)
                stale = last
            attempt = last.attempt + 1 if last else 1
            new = _create(basket, attempt, buyer, lines) if lines else None
    except IntegrityError as error:
        raise Busy(basket) from error  # Another request has created the same attempt.
    if stale:
        release(stale)
    return new


def _goes_on(last: Checkout, buyer: str, lines: Lines) -> bool:
    if (last.buyer, last.lines) != (buyer, lines):
        return False
    return last.state == State.PLACING or last.holds_for(conf.get("LEASE_SECONDS"))


def _create(basket: str, attempt: int, buyer: str, lines: Lines) -> Checkout:
    return Checkout.objects.create(
        basket=basket,
        attempt=attempt,
        buyer=buyer,
        lines=lines,
        worker=_name(),
        lease_until=lease(),
    )


def _name() -> str:
    return secrets.token_hex(16)


def lease() -> datetime:
    return timezone.now() + timedelta(seconds=conf.get("LEASE_SECONDS"))


def take(checkout: Checkout) -> bool:
    """Makes the caller its worker, if no other one owns it. The worker of before is fenced off."""
    fields: dict[str, Any] = {"worker": _name(), "lease_until": lease()}
    if checkout.state == State.PLACING and checkout.worker:
        # Its worker has died during the call. Nothing tells whether the call arrived.
        fields["lost_at"] = checkout.lease_until
    taken = Checkout.objects.filter(
        pk=checkout.pk,
        state=checkout.state,
        worker=checkout.worker,
        lease_until__lte=timezone.now(),
    ).update(**fields)
    if taken:
        _set(checkout, fields)
    return bool(taken)


def move(checkout: Checkout, states: Iterable[str], to: State, **fields: Any) -> bool:
    """Moves it, if it is in one of the states and still ours."""
    fields |= {"state": to}
    moved = Checkout.objects.filter(
        pk=checkout.pk, state__in=list(states), worker=checkout.worker
    ).update(**fields)
    if moved:
        _set(checkout, fields)
    return bool(moved)


def _set(checkout: Checkout, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        setattr(checkout, name, value)


def let_go(checkout: Checkout, **fields: Any) -> None:
    """Ends the lease, so that the next request or `settle` may go on at once."""
    fields |= {"worker": "", "lease_until": timezone.now()}
    if Checkout.objects.filter(pk=checkout.pk, worker=checkout.worker).update(**fields):
        _set(checkout, fields)


def hold(checkout: Checkout, kind: str = conf.PAGE) -> None:
    """Gets the units of all lines, or of none. Raises `Unknown`, `NotHeld` or `NoLongerHeld`."""
    if checkout.state == State.HELD:
        return
    try:
        cart = ask(checkout, kind)
    except NotHeld as error:
        end(checkout, [State.PLACING], State.REFUSED, error.code)
        raise
    except NoLongerHeld as error:
        end(checkout, [State.PLACING], State.RELEASED, error.state)
        raise
    held = {"cart": cart.id, "expires_at": cart.expires_at, "lost_at": None}
    if not move(checkout, [State.PLACING], State.HELD, lease_until=lease(), **held):
        raise Busy(checkout.key)


def ask(checkout: Checkout, kind: str) -> Cart:
    """Asks Stockade for the cart of the key, and judges what a refusal is worth."""
    began = timezone.now()
    cart = NewCart([(item, units) for item, units in checkout.lines], key=checkout.key)
    try:
        return conf.buyer(checkout.buyer, kind).place_cart(cart).cart
    except NoLongerHeld:
        raise
    except Refused as error:
        if error.settles_key or not (error.is_final or _lost_lately(checkout)):
            raise NotHeld(error.problem.code, error.problem.item) from error
        let_go(checkout)  # An expired token, a rate or a proxy has answered: nothing is decided.
        raise Unknown(str(error)) from error
    except Error as error:
        may_have_run = not isinstance(error, OutcomeUnknown) or error.may_have_run
        let_go(checkout, **({"lost_at": began} if may_have_run else {}))
        raise Unknown(str(error)) from error


def _lost_lately(checkout: Checkout) -> bool:
    """Whether a call that is lost may still take units after a refusal that left no record."""
    if checkout.lost_at is None:
        return False
    call = conf.get("PATIENCE_SECONDS") + conf.get("ATTEMPT_SECONDS")
    return timezone.now() - checkout.lost_at < timedelta(seconds=call + _LATE_SECONDS)


def charging(checkout: Checkout) -> str:
    """Notes that the card may be charged from now on; returns the reference of the charge."""
    if not move(checkout, [State.HELD], State.CHARGING, lease_until=lease()):
        raise Lost(checkout.key)
    return checkout.payment


def place(checkout: Checkout, order_number: object) -> None:
    """Call it in the transaction that writes the order: either both exist, or none."""
    if not move(checkout, [State.CHARGING], State.PLACED, order_number=str(order_number)):
        raise Lost(checkout.key)


def report(checkout: Checkout, kind: str = conf.PAGE) -> None:
    """Reports the payment. If no answer comes, `settle` reports it again."""
    try:
        state = conf.provider(kind).report_cart(CartPayment(checkout.payment, checkout.cart)).state
    except Refused as error:
        logger.error("checkout %s: the report of its payment was refused: %s", checkout.key, error)
        # The money of `payment_returned` went back before; a repeated refund returns nothing.
        if not error.returns_money and not error.is_code("payment_returned"):
            return let_go(checkout)
        state = "refund_due"
    except Error as error:
        logger.warning("checkout %s: not reported yet: %s", checkout.key, error)
        return let_go(checkout)
    note(checkout.cart, state)
    checkout.refresh_from_db()
    let_go(checkout)


def abandon(checkout: Checkout) -> None:
    """The request has failed before it placed the order: the money and the units go back."""
    if move(checkout, [State.PLACING, State.HELD, State.CHARGING], State.RELEASING):
        release(checkout)


def release(checkout: Checkout, kind: str = conf.PAGE) -> None:
    """Returns the money and units of a checkout without an order. `settle` repeats what fails."""
    try:
        conf.shop().refund(checkout)
        _release_units(checkout, kind)
    except Exception as error:  # The shop's processor has errors of its own.
        logger.warning("checkout %s: not released yet: %s", checkout.key, error)
        let_go(checkout)


def _release_units(checkout: Checkout, kind: str) -> None:
    buyer = conf.buyer(checkout.buyer, kind)
    try:
        # The outcome may be unknown, and then only the key tells which cart it is.
        cart = checkout.cart or ask(checkout, kind).id
        state = buyer.cancel_cart(cart).state
    except NotHeld as error:
        end(checkout, [State.RELEASING], State.REFUSED, error.code)
        return
    except NoLongerHeld as error:
        state = error.state
    except Refused as error:
        if not error.is_code("cart_not_cancellable"):
            raise
        state = buyer.cart(cart).state
    end(checkout, [State.RELEASING], State.RELEASED, state)


def end(checkout: Checkout, states: Iterable[str], to: State, reason: str) -> None:
    """Ends an attempt without an order, and tells the shop in the same transaction."""
    reason = checkout.reason or reason
    with transaction.atomic():
        if move(checkout, states, to, reason=reason, lease_until=timezone.now()):
            conf.shop().released(checkout)


#: What a state of the cart makes of a checkout: from which states, and to which.
_NOTED: dict[str, tuple[tuple[State, ...], State]] = {
    "confirmed": ((State.PLACED,), State.CONFIRMED),
    "cancelled": ((State.HELD,), State.RELEASED),
    "expired": ((State.HELD,), State.RELEASED),
    "refund_due": ((State.PLACED, State.CONFIRMED), State.REFUND_DUE),
    # An admin has noted it at Stockade: the order is still to be cancelled here.
    "refunded": ((State.PLACED, State.CONFIRMED), State.REFUND_DUE),
}


def note(cart: str, state: str) -> None:
    """Notes what a cart has become. It may be told late, twice or out of order."""
    if not cart or state not in _NOTED:
        return
    states, to = _NOTED[state]
    reason = "" if to == State.CONFIRMED else state
    with transaction.atomic():
        open_ones = Checkout.objects.filter(cart=cart, state__in=states)
        if open_ones.update(state=to, reason=reason):
            _tell_shop(Checkout.objects.get(cart=cart))


def _tell_shop(checkout: Checkout) -> None:
    if checkout.state == State.CONFIRMED:
        conf.shop().confirmed(checkout)
    elif checkout.state == State.RELEASED:
        conf.shop().released(checkout)


def cancel_placed(order_number: object, reason: str) -> bool:
    """The staff cancels an order: `settle` returns its money, and then its units.

    One whose payment is not reported yet counts too. Call it in the cancellation's transaction.
    """
    return bool(
        Checkout.objects.filter(
            order_number=str(order_number), state__in=(State.PLACED, State.CONFIRMED)
        ).update(state=State.REFUND_DUE, reason=reason)
    )
