"""Who a request is at Stockade."""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings
from django.http import HttpRequest


def buyer_of(request: HttpRequest) -> str:
    """The account, or the session of a guest.

    A session key is a password, so its MAC is what leaves the shop. A guest's limit holds for the
    session only.
    """
    if request.user.is_authenticated:
        return f"user-{request.user.pk}"
    if not request.session.session_key:
        request.session.save()
    key = request.session.session_key or ""
    tag = hmac.digest(settings.SECRET_KEY.encode(), f"stockade-{key}".encode(), hashlib.sha256)
    return f"guest-{tag.hex()[:32]}"
