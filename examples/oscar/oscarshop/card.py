"""The client of the card processor, and the payment step of oscar's checkout."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from django.conf import settings
from oscar.apps.payment.exceptions import GatewayError, UnableToTakePayment

_SECONDS = 10


def charge(reference: str, amount: str, card: str) -> None:
    """Charges once, however often it is called with the reference."""
    status = _post("/charge", {"reference": reference, "amount": amount, "card": card})
    if status == 402:
        raise UnableToTakePayment("Your card was declined.")
    if status != 200:
        raise GatewayError(f"the card processor answered {status}")


def refund(reference: str) -> None:
    """Returns the money if there was a charge, and has the processor refuse a later one."""
    status = _post("/refund", {"reference": reference})
    if status != 200:
        raise GatewayError(f"the card processor answered {status}")


def _post(path: str, body: dict[str, str]) -> int:
    data = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(settings.CARD_PROCESSOR + path, data, headers, method="POST")
    try:
        with urlopen(request, timeout=_SECONDS) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code
    except (URLError, OSError) as error:
        raise GatewayError(str(error)) from error


class CardPayment:
    """Put it before oscar's `PaymentDetailsView`: it charges the card that the buyer has chosen."""

    request: Any

    def handle_payment(self, order_number: object, total: Any, **kwargs: Any) -> None:
        self.take_payment(f"{settings.STOCKADE['KEY_PREFIX']}-order-{order_number}", total)

    def take_payment(self, reference: str, total: Any) -> None:
        card = self.request.POST.get("card", "good")
        charge(reference, str(total.incl_tax), card)
        self.add_payment_event("Charged", total.incl_tax, reference)  # type: ignore[attr-defined]
