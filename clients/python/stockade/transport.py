"""Connections that stay open, and complete responses or none."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .answers import leaves_open
from .errors import Contract, InvalidInput, OutcomeUnknown, Problem, Refused
from .limits import Limit
from .processes import PerProcess

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


class _Idle:
    """The connections of a process that no request uses."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connections: list[tuple[float, http.client.HTTPConnection]] = []

    def take(self) -> http.client.HTTPConnection | None:
        """A connection that the other side has hardly closed yet."""
        with self.lock:
            while self.connections:
                since, connection = self.connections.pop()
                if time.monotonic() - since < _IDLE_SECONDS_MAX and connection.sock:
                    return connection
                connection.close()
        return None

    def keep(self, connection: http.client.HTTPConnection) -> None:
        with self.lock:
            if len(self.connections) < _IDLE_CONNECTIONS_MAX:
                self.connections.append((time.monotonic(), connection))
                return
        connection.close()

    def close(self) -> None:
        """Takes no lock: in a child, a thread of the parent may hold it."""
        while self.connections:
            try:
                self.connections.pop()[1].close()
            except IndexError:  # Another thread was faster.
                return


class Instance:
    """An instance of the service. Threads share its connections, and processes do not."""

    def __init__(self, url: str) -> None:
        host, port, path, is_secure = _address(url)
        self._connection_type = (
            http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        )
        self._host, self._port, self._path = host, port, path
        # In a child, `close` ends the copy of this process; the parent's connection stays open.
        self._idle = PerProcess(_Idle, _Idle.close)

    def exchange(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout: float
    ) -> Response:
        """Sends a request once. Without a complete response, the outcome is unknown."""
        limit, idle = Limit(timeout), self._idle.get()
        connection = idle.take() or self._connection_type(self._host, self._port)
        try:
            limit.begin(connection)
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
            idle.keep(connection)
        return received

    def close(self) -> None:
        self._idle.get().close()


def _address(url: str) -> tuple[str, int | None, str, bool]:
    """The host, the port and the path of a URL, and whether it is of HTTPS."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if isinstance(url, str) and parts.scheme in ("http", "https") and host:
            return host, port, parts.path.rstrip("/"), parts.scheme == "https"
    except (ValueError, AttributeError, TypeError):
        pass
    raise InvalidInput("url", "an address such as http://127.0.0.1:8080")


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
