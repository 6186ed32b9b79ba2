"""Tokens and signatures: what proves who calls."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from . import checks
from .errors import Contract, InvalidInput
from .models import Event
from .reading import read

#: A mapping of names to values, or pairs of them, as text or as ASCII bytes (as ASGI has them).
Headers = Mapping[str, str] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]

#: `{"alg":"HS256","typ":"JWT"}` in base64url.
_HEADER = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"


class InvalidSignature(Exception):
    """A message that does not come from Stockade, or that is too old. Answer 400 and drop it."""


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def mint_buyer(
    secret: str,
    buyer: str,
    *,
    issuer: str | None = None,
    audience: str | None = None,
    lifetime: int = 3600,
    now: float | None = None,
) -> str:
    """Issues a buyer's JWT (HS256), valid for `lifetime` seconds from now.

    For shops that share `STOCKADE_JWT_SECRET` with the service. A shop with a public key issues
    tokens with its own library. `issuer` and `audience` are what the service demands, if it does
    (`STOCKADE_JWT_ISSUER`, `STOCKADE_JWT_AUDIENCE`).
    """
    expires = int(time.time() if now is None else now) + checks.whole("lifetime", lifetime)
    claims: dict[str, str | int] = {"sub": checks.buyer(buyer), "exp": expires}
    for name, value in (("iss", issuer), ("aud", audience)):
        if value is not None:
            claims[name] = checks.text(name, value)
    text = json.dumps(claims, separators=(",", ":"), ensure_ascii=False)
    signed = f"{_HEADER}.{_base64url(text.encode())}"
    key = checks.text("secret", secret).encode()
    tag = hmac.digest(key, signed.encode(), hashlib.sha256)
    return f"{signed}.{_base64url(tag)}"


def sign_payment(secret: str, body: bytes, *, now: float | None = None) -> str:
    """The value of `Stockade-Signature` for a body that is sent now: `t=SECONDS,v1=HEX`.

    The time is signed as well, so a copied message is useless after the service's window.
    """
    seconds = int(time.time() if now is None else now)
    tag = hmac.digest(checks.text("secret", secret).encode(), f"{seconds}.".encode() + body, hashlib.sha256)
    return f"t={seconds},v1={tag.hex()}"


class Webhook:
    """Verifies webhooks by Standard Webhooks (https://www.standardwebhooks.com).

    Several secrets are those of several webhooks, or the old and the new one while it changes.
    """

    def __init__(self, *secrets: str, tolerance: int = 300) -> None:
        """`secrets` are `whsec_...`; `tolerance` is in seconds."""
        if not secrets:
            raise InvalidInput("secrets", "one at least")
        self._keys = [self._key(secret) for secret in secrets]
        self._tolerance = tolerance

    @staticmethod
    def _key(secret: str) -> bytes:
        try:
            text = checks.text("secrets", secret).removeprefix("whsec_")
            key = base64.b64decode(text, validate=True)
        except InvalidInput:
            raise
        except ValueError:  # No base64, or no ASCII.
            key = b""
        if not key:
            raise InvalidInput("secrets", "whsec_ and base64")
        return key

    def verify(self, headers: Headers, body: bytes, *, now: float | None = None) -> Event:
        """The event in `body`, which must be the raw body of the request.

        `headers` are a mapping or pairs, with names in any case. Anything that Stockade would not
        send is `InvalidSignature`. Remember `event.id` with what you do about the event: it may
        come again.
        """
        self.check(headers, body, now=now)
        try:
            return read(Event, json.loads(bytes(body)))
        except (Contract, ValueError, RecursionError):
            raise InvalidSignature("the body is no event") from None

    def check(self, headers: Headers, body: bytes, *, now: float | None = None) -> None:
        """Raises `InvalidSignature` unless a secret has signed the headers and the raw body now."""
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise InvalidSignature("the body is not the raw bytes of the request")
        known = _webhook_headers(headers)
        message, seconds, signatures = (
            _required(known, f"webhook-{name}") for name in ("id", "timestamp", "signature")
        )
        if not re.fullmatch(r"[0-9]{1,15}", seconds):
            raise InvalidSignature("webhook-timestamp is no number")
        if abs((time.time() if now is None else now) - int(seconds)) > self._tolerance:
            raise InvalidSignature("webhook-timestamp is too far from now")
        signed = f"{message}.{seconds}.".encode() + bytes(body)
        if not self._is_signed(signed, signatures.split()):
            raise InvalidSignature("no signature matches")

    def _is_signed(self, signed: bytes, signatures: Iterable[str]) -> bool:
        tags = [hmac.digest(key, signed, hashlib.sha256) for key in self._keys]
        wanted = [b"v1," + base64.b64encode(tag) for tag in tags]
        # Compares all, so that the time tells nothing.
        matches = [
            hmac.compare_digest(one, other.encode()) for one in wanted for other in signatures
        ]
        return any(matches)


def _webhook_headers(headers: Any) -> dict[str, str | None]:
    """The headers of a webhook by their lower-case names. `None`: no text, or there are several."""
    found: dict[str, str | None] = {}
    try:
        pairs = list(headers.items() if hasattr(headers, "items") else headers)
        for name, value in pairs:
            lower = (_ascii(name) or "").lower()
            if lower.startswith("webhook-"):
                text = _ascii(value)
                found[lower] = text if found.get(lower, text) == text else None
    except (TypeError, ValueError):
        raise InvalidSignature("the headers are neither a mapping nor pairs") from None
    return found


def _ascii(value: Any) -> str | None:
    """The text of a header. What Stockade sends is ASCII."""
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    return value if isinstance(value, str) and value.isascii() else None


def _required(headers: dict[str, str | None], name: str) -> str:
    if name not in headers:
        raise InvalidSignature(f"no header {name}")
    value = headers[name]
    if value is None:
        raise InvalidSignature(f"the header {name} is no ASCII text, or there are several")
    return value
