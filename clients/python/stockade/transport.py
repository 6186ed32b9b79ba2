"""Connections that stay open, and complete responses or none."""

from __future__ import annotations

import http.client
import json
import os
import re
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .answers import leaves_open
from .errors import Contract, InvalidInput, OutcomeUnknown, Problem, Refused

#: The service, or a proxy before it, closes connections that are idle for longer.
_IDLE_SECONDS_MAX = 4.0
_IDLE_CONNECTIONS_MAX = 32


#: What every problem of the service is.
PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Response:
    """A complete response."""

    status: int
    replayed: bool
    retry_after: int | None
    #: The version of the item, which `If-Match` takes. Only admins receive it.
    version: int | None
    #: What the body is, as its sender says: `application/json`.
    content_type: str
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Contract(self.status, f"the body is not JSON: {error}") from None

    def object(self) -> dict[str, Any]:
        """The body, which must be an object."""
        body = self.json()
        if not isinstance(body, dict):
            raise Contract(self.status, "the body is no object")
        return body

    def nothing(self) -> None:
        """Checks that the response says nothing, which is the success of some calls."""
        if self.status != 204 or self.body:
            raise Contract(self.status, "expected 204 without a body")

    def into_success(self) -> Response:
        """The response if its status is a success.

        Other 4xx statuses are refusals of this attempt, by the service or by something before it.
        408 and every 5xx status leave the outcome open.
        """
        if 200 <= self.status <= 299:
            return self
        if leaves_open(self.status):
            raise OutcomeUnknown(self.problem())
        if 400 <= self.status <= 499:
            raise Refused(self.problem())
        raise Contract(self.status, "the API does not use this status")

    def problem(self) -> Problem:
        try:
            body = json.loads(self.body)
        except (ValueError, RecursionError):
            body = None
        known = body if isinstance(body, dict) else {}
        # A gateway has codes too, and not as problem+json.
        ours = known if self.content_type == PROBLEM else {}
        return Problem(
            status=self.status,
            code=_text(ours, "code") or "",
            detail=_text(known, "detail") or "",
            field=_text(known, "field"),
            item=_text(known, "item"),
            final=ours.get("final") is not False,
            retry_after=self.retry_after,
        )


class Instance:
    """An instance of the service. Threads share its connections, and processes do not."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput("url", "an address such as http://127.0.0.1:8080")
        self._connection_type = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._address = (parts.hostname, parts.port)
        self._path = parts.path.rstrip("/")
        self._forget()
        _INSTANCES.add(self)

    def _forget(self) -> None:
        """Starts without connections. Two processes that share one would read each other's answers."""
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def exchange(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout: float
    ) -> Response:
        """Sends a request once. Without a complete response, the outcome is unknown."""
        connection = self._connect(timeout)
        try:
            connection.request(method, self._path + path, body, headers)
            response = connection.getresponse()
            received = _receive(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise OutcomeUnknown(error) from error
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return received

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < _IDLE_SECONDS_MAX and connection.sock:
                    connection.sock.settimeout(timeout)
                    return connection
                connection.close()
        host, port = self._address
        return self._connection_type(host, port, timeout=timeout)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _IDLE_CONNECTIONS_MAX:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop()[1].close()


#: What a child of this process must forget.
_INSTANCES: weakref.WeakSet[Instance] = weakref.WeakSet()


def _forget_all() -> None:
    for instance in list(_INSTANCES):
        connections = instance._idle
        instance._forget()
        for _, connection in connections:
            connection.close()  # Closes the copy of this process; the parent's stays open.


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_forget_all)


def _receive(response: http.client.HTTPResponse) -> Response:
    # `http.client` takes headers that break off for complete ones, and a body without a length for
    # one that ends with the connection. Each response of the service has a length.
    if response.length is None and not response.chunked:
        raise http.client.IncompleteRead(b"")
    return Response(
        status=response.status,
        replayed=response.headers.get("Idempotent-Replayed") == "true",
        retry_after=_number(response.headers.get("Retry-After")),
        version=_version(response.headers.get("ETag")),
        content_type=response.headers.get_content_type(),
        body=response.read(),
    )


def _text(body: dict[str, Any], name: str) -> str | None:
    """A field of a body that may come from anybody: a gateway's `code` can be a number."""
    value = body.get(name)
    return value if isinstance(value, str) else None


def _version(tag: str | None) -> int | None:
    """The version in an `ETag`. A proxy that compresses makes it weak (`W/"3"`) or `"3-gzip"`."""
    version = re.fullmatch(r'(?:W/)?"?([0-9]+)(?:[-;][^"]*)?"?', tag or "")
    return _number(version[1]) if version else None


def _number(text: str | None) -> int | None:
    """A number of at most 15 digits; Python refuses to read one of thousands."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,15}", text) else None
