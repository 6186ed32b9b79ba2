"""The waiting page, and the endpoint of the webhook."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from stockade import InvalidSignature, NoLongerHeld, Webhook

from . import checkouts, conf, events
from .models import ENDED, Checkout, State, WebhookSecret

#: Where the session has the basket of its latest checkout.
SESSION_BASKET = "stockade_basket"
_OVER = (State.PLACED, State.CONFIRMED)


def latest(request: HttpRequest) -> Checkout | None:
    """The latest attempt of this session's basket."""
    basket = request.session.get(SESSION_BASKET)
    if basket is None:
        return None
    return Checkout.objects.filter(basket=str(basket)).order_by("-attempt").first()


def is_under_way(checkout: Checkout | None) -> bool:
    """Whether the waiting page is the answer to another click."""
    if checkout is None or checkout.state in ENDED:
        return False
    return checkout.state != State.HELD or not checkout.is_free


@never_cache
def wait(request: HttpRequest) -> HttpResponse:
    """For a second click, and while an outcome is unknown. Only a decision ends it."""
    checkout, shop = latest(request), conf.shop()
    if checkout and checkout.state == State.PLACING and checkout.is_free:
        _ask_again(checkout)
    if checkout is None:
        return redirect(shop.ended_url(request, None))
    if checkout.state in _OVER:
        return redirect(shop.placed_url(request, checkout))
    if checkout.state == State.HELD and checkout.is_free:
        return redirect(shop.held_url(request, checkout))
    if checkout.state in (*ENDED, State.REFUND_DUE, State.RETURNING, State.REFUNDED):
        return redirect(shop.ended_url(request, checkout))
    return render(request, "stockade/wait.html", status=202)


def _ask_again(checkout: Checkout) -> None:
    if not checkouts.take(checkout):
        return
    try:
        checkouts.hold(checkout)
        checkouts.let_go(checkout)
    except (checkouts.Busy, checkouts.Unknown, checkouts.NotHeld, NoLongerHeld):
        pass
    checkout.refresh_from_db()


@csrf_exempt
@require_POST
def webhook(request: HttpRequest) -> HttpResponse:
    """Verifies the raw body, and applies the event."""
    secrets = WebhookSecret.objects.values_list("secret", flat=True)
    if not secrets:
        return HttpResponse("no secret is known", status=503)
    try:
        event = Webhook(*secrets).verify(request.headers, request.body)
    except InvalidSignature as error:
        return HttpResponse(str(error), status=400)
    events.handle(event)
    return HttpResponse(status=204)
