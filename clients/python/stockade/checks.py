"""What a value must be to become part of a request. Anything else is `InvalidInput`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from .errors import InvalidInput


def text(field: str, value: object) -> str:
    """A text. A number would be another name in each language."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"a str, not {_kind(value)}")
    return value


def whole(field: str, value: object) -> int:
    """A whole number. A `Decimal` may have a fraction, and JSON does not know it."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(field, f"an int, not {_kind(value)}")
    return value


def if_stated(check: Callable[[str, object], object], field: str, value: object) -> None:
    """What may be absent."""
    if value is not None:
        check(field, value)


def seconds(field: str, value: object) -> float:
    """A duration that a clock can count."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise InvalidInput(field, "seconds, as an int or a float of 0 or more")
    return value  # type: ignore[return-value]


def key(value: object) -> str:
    """A key is what makes two requests the same order, or the same change of stock."""
    if not re.fullmatch(r"[!-~]{1,255}", text("key", value)):
        raise InvalidInput("key", "1 to 255 visible ASCII characters")
    return str(value)


def token(value: object) -> str:
    """What a header can carry."""
    if not re.fullmatch(r"[!-~]+", text("token", value)):
        raise InvalidInput("token", "visible ASCII characters")
    return str(value)


def buyer(value: object) -> str:
    """A name of a buyer, as the service takes it."""
    name = text("buyer", value)
    is_control = any(ord(one) < 32 or 127 <= ord(one) < 160 for one in name)
    try:
        length = len(name.encode())
    except UnicodeEncodeError:  # Half of a surrogate pair.
        length = 0
    if not 1 <= length <= 128 or is_control or name in (".", ".."):
        wanted = "1 to 128 bytes of UTF-8 without control characters, and neither `.` nor `..`"
        raise InvalidInput("buyer", wanted)
    return name


def _kind(value: object) -> str:
    return type(value).__name__
