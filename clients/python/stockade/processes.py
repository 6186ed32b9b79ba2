"""What belongs to the process that made it.

A fork copies sockets, locks and the memory of threads. Two processes that share a socket would read
each other's answers, and a lock that another thread held stays locked in the child for good.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value of which each process makes its own, when it uses it first."""

    def __init__(self, make: Callable[[], T], discard: Callable[[T], None] = lambda _: None) -> None:
        """A child makes its value with `make`, and ends its copy of the parent's by `discard`."""
        self._make, self._discard = make, discard
        self._owned = (os.getpid(), make())
        _ALL.add(self)

    def get(self) -> T:
        """The value of this process."""
        owner, value = self._owned
        # A server in C such as uWSGI forks without a call of the hooks below.
        return value if owner == os.getpid() else self._renew(value)

    def _renew(self, inherited: T) -> T:
        """Replaces the parent's value. A lock would not do here: a thread of the parent may hold it.

        Threads that come at the same moment may each make one. Only the last of them stays, and
        none of them ends that of another.
        """
        self._owned = (os.getpid(), value := self._make())
        self._discard(inherited)
        return value


_ALL: weakref.WeakSet[PerProcess[Any]] = weakref.WeakSet()


def _renew_all() -> None:
    for owned in list(_ALL):
        owned._renew(owned._owned[1])


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    # A child may get the number of a process that made a value and has ended.
    os.register_at_fork(after_in_child=_renew_all)
