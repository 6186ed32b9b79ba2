"""How requests are repeated whose outcome is unknown."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Repeats a request until its outcome is known or `deadline` seconds have passed.

    The pause doubles from `pause` to `pause_max`, and varies at random by up to half, so that the
    clients of a service that recovers do not all return at the same moment. A pause is at least as
    long as the service's `Retry-After`, but never longer than `pause_max`.
    """

    #: Seconds from the first attempt after which no further attempt begins.
    deadline: float = 30.0
    #: Seconds of pause after the first attempt.
    pause: float = 0.05
    #: Seconds of the longest pause.
    pause_max: float = 2.0

    @classmethod
    def never(cls) -> RetryPolicy:
        """Sends each request once."""
        return cls(deadline=0.0, pause=0.0, pause_max=0.0)

    def pause_after(self, attempts: int, retry_after: int | None) -> float:
        doubled = min(self.pause * 2.0 ** min(attempts - 1, 60), self.pause_max)
        varied = doubled * random.uniform(0.5, 1.0)
        return min(max(varied, float(retry_after or 0)), self.pause_max)
