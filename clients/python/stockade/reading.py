"""Reads answers as models. Fields that a later service adds are ignored."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

from .errors import Contract

T = TypeVar("T")


def read(model: type[T], body: Any, status: int = 200, **more: Any) -> T:
    """Reads a JSON object as `model`; what is missing violates the contract."""
    if not isinstance(body, dict):
        raise Contract(status, f"expected an object, found {type(body).__name__}")
    types = get_type_hints(model)
    values = dict(more)
    for known in fields(model):  # type: ignore[arg-type]
        if known.name in values:
            continue
        if known.name in body:
            values[known.name] = _value(types[known.name], body[known.name], known.name, status)
        elif known.default is MISSING and known.default_factory is MISSING:
            raise Contract(status, f"{known.name} is missing")
    return model(**values)


def _value(expected: Any, value: Any, name: str, status: int) -> Any:
    try:
        if value is not None and expected in (datetime, datetime | None):
            return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Contract(status, f"{name}: {value!r} is no time") from None
    if not isinstance(value, _classes(expected)):
        raise Contract(status, f"{name}: {value!r} is no {expected}")
    if get_origin(expected) is list:
        (row,) = get_args(expected)
        if isinstance(row, type) and is_dataclass(row):
            return [read(row, each, status) for each in cast(list[Any], value)]
    return value


def _classes(expected: Any) -> tuple[type, ...]:
    """The classes of a type, without what they contain."""
    options = get_args(expected) if isinstance(expected, UnionType) else (expected,)
    return tuple(
        dict if is_typeddict(option) else get_origin(option) or option for option in options
    )
