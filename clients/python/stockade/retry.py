"""How requests are repeated whose outcome is unknown."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Repeats a request until its outcome is known or `deadline` seconds have passed.

    The pause doubles from `pause` to `pause_max`, and varies at random by up to half, so that the
    clients of a service that recovers do not all return at the same moment. A pause is at least as
    long as `Retry-After`, even if that is longer than `pause_max`. If it does not end before the
    deadline, the attempts end at once.
    """

    #: Seconds from the first attempt after which no further attempt begins. The last attempt may
    #: take `attempt_timeout` of the client more: inside a request of a web server, choose both so
    #: that their sum is below the server's own limit.
    deadline: float = 30.0
    #: Seconds of pause after the first attempt.
    pause: float = 0.05
    #: Seconds of the longest pause that the client chooses itself.
    pause_max: float = 2.0

    @classmethod
    def never(cls) -> RetryPolicy:
        """Sends each request once."""
        return cls(deadline=0.0, pause=0.0, pause_max=0.0)

    def pause_after(self, attempts: int, retry_after: int | None) -> float:
        doubled = min(self.pause * 2.0 ** min(attempts - 1, 60), self.pause_max)
        varied = doubled * random.uniform(0.5, 1.0)
        return max(varied, float(retry_after or 0))
