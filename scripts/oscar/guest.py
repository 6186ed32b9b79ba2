"""A guest with a browser: goods into the basket, through oscar's checkout, and `Place order`."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from urllib.parse import urlencode, urlsplit

_SECONDS = 60
#: Django takes any token of this form from the cookie, as long as the form has the same.
_TOKEN = "oscar" + 27 * "0"
PREVIEW, WAIT, THANKS = "/checkout/preview/", "/stockade/wait/", "/checkout/thank-you/"
ADDRESS = {
    "first_name": "Ann",
    "last_name": "Guest",
    "line1": "1 Main Street",
    "line4": "Berlin",
    "postcode": "10115",
    "country": "DE",
}


@dataclass
class Answer:
    status: int
    path: str = ""
    body: str = ""


@dataclass
class Guest:
    port: int
    name: str
    cookies: dict[str, str] = field(default_factory=dict)

    def request(self, path: str, form: dict[str, str] | None = None) -> Answer:
        """One request; status 0 if no answer came."""
        headers, body = {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}, None
        if form is not None:
            body = urlencode(form | {"csrfmiddlewaretoken": self.cookies.get("csrftoken", "")})
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            connection.request("GET" if form is None else "POST", path, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            return Answer(0)
        finally:
            connection.close()
        self._keep(response.headers.get_all("Set-Cookie") or [])
        return Answer(response.status, urlsplit(response.headers.get("Location", "")).path, text)

    def _keep(self, headers: list[str]) -> None:
        for header in headers:
            for name, morsel in SimpleCookie(header).items():
                if morsel.value and morsel["max-age"] != "0":
                    self.cookies[name] = morsel.value
                else:
                    self.cookies.pop(name, None)

    def shop(self, products: dict[str, int], looks: bool = False) -> None:
        """Everything before the last click. Looking at the goods changes nothing, and costs time."""
        if not looks:
            self.cookies["csrftoken"] = _TOKEN
        for slug, product in products.items():
            if looks:
                self.expect(self.request(f"/catalogue/{slug}_{product}/"), 200)
            self.expect(self.request(f"/basket/add/{product}/", {"quantity": "1"}), 302)
        email = {"username": f"{self.name}@example.com", "options": "anonymous"}
        self.expect(self.request("/checkout/", email), 302, "/checkout/shipping-address/")
        address = self.request("/checkout/shipping-address/", ADDRESS)
        self.expect(address, 302, "/checkout/shipping-method/")
        self.expect(self.request("/checkout/shipping-method/"), 302, "/checkout/payment-method/")
        # The page with the last button, which notes the basket in the session as well.
        self.expect(self.request(PREVIEW), 200)

    def expect(self, answer: Answer, status: int, path: str | None = None) -> None:
        if answer.status != status or path not in (None, answer.path):
            raise SystemExit(
                f"{self.name}: expected {status} {path or ''}, "
                f"found {answer.status} {answer.path}\n{answer.body[-2000:]}"
            )

    def click(self, card: str = "good") -> Answer:
        return self.request(PREVIEW, {"action": "place_order", "card": card})

    def buy(self, card: str = "good", clicks: int = 1, seconds: float = 90) -> bool:
        """Clicks, and follows the waiting page. True if the order was placed.

        Each further click stands for another attempt after a refusal that may be of this moment.
        """
        deadline = time.monotonic() + seconds
        while clicks and time.monotonic() < deadline:
            answer = self.click(card)
            if answer.path == WAIT:
                answer = self._wait(deadline)
            if answer.path == THANKS:
                return True
            if answer.path == PREVIEW:
                continue  # The units are held, and the page asks for one click more.
            if answer.status == 0 or answer.status >= 500:
                time.sleep(0.2)  # The worker has died: a guest clicks again.
                continue
            clicks -= 1
        return False

    def _wait(self, deadline: float) -> Answer:
        answer = Answer(202)
        while answer.status != 302 and time.monotonic() < deadline:
            time.sleep(0.3)
            answer = self.request(WAIT)
        return answer
