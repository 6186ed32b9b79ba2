"""How long one attempt may take in all."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

#: Seconds. A socket with the time-out 0 would not wait at all.
_WAIT_MIN = 0.001


class Limit:
    """Ends an attempt when its time is over. The time-out of a socket limits each wait alone.

    It does not bound the look-up of a name, which has the time-outs of the resolver.
    """

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left, at least as many as a socket can wait."""
        return max(self._ends - time.monotonic(), _WAIT_MIN)

    def begin(self, connection: http.client.HTTPConnection) -> None:
        """Connects if needed. The limit holds for whatever the connection does next."""
        connection.response_class = self._response  # type: ignore[assignment]
        if connection.sock is None:
            connection.timeout = self.left()
            connection._create_connection = self._connect  # type: ignore[attr-defined]
            connection.connect()
        connection.sock.settimeout(self.left())

    def _connect(self, address: tuple[str, int], *_more: Any) -> socket.socket:
        """Tries the addresses of a host in turn, as `socket.create_connection` does."""
        failed: OSError | None = None
        for family, kind, protocol, _name, target in socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM
        ):
            connected = socket.socket(family, kind, protocol)
            try:
                connected.settimeout(self.left())
                connected.connect(target)
                connected.settimeout(self.left())
                return connected
            except OSError as error:
                connected.close()
                failed = error
        raise failed or OSError("the name has no address")

    def _response(self, sock: socket.socket, *more: Any, **named: Any) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(_Limited(sock, self), *more, **named)  # type: ignore[arg-type]


class _Limited:
    """What `HTTPResponse` needs of a socket: a file to read."""

    def __init__(self, sock: socket.socket, limit: Limit) -> None:
        self._socket, self._limit = sock, limit

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Reads(self._socket, self._limit))


class _Reads(io.RawIOBase):
    """Reads of a socket, each of which waits no longer than what is left."""

    def __init__(self, sock: socket.socket, limit: Limit) -> None:
        # The socket's own file keeps the socket open until it is closed itself.
        self._socket, self._limit, self._file = sock, limit, sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(self._limit.left())
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
