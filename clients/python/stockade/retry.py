"""How requests are repeated whose outcome is unknown."""

from __future__ import annotations

import random
from dataclasses import dataclass

from . import checks


#: Seconds that the last attempt has at least: one that ends at once would only lose an answer.
LAST_ATTEMPT_SECONDS = 1.0


@dataclass(frozen=True)
class RetryPolicy:
    """Repeats a request until its outcome is known or `deadline` seconds have passed.

    The default fits a request of a web server, whose worker waits meanwhile: with that of
    `attempt_timeout`, a call ends after 9 seconds at most. Choose minutes in a background job.

    The pause doubles from `pause` to `pause_max`, and varies at random by up to half, so that the
    clients of a service that recovers do not all return at the same moment. A pause is at least as
    long as `Retry-After`, even if that is longer than `pause_max`. If it does not end before the
    deadline, the attempts end at once.
    """

    #: Seconds from the first attempt after which no further attempt begins. A repeat ends then as
    #: well, but has a second at least.
    deadline: float = 8.0
    #: Seconds of pause after the first attempt.
    pause: float = 0.05
    #: Seconds of the longest pause that the client chooses itself.
    pause_max: float = 2.0

    def __post_init__(self) -> None:
        for name in ("deadline", "pause", "pause_max"):
            checks.seconds(name, getattr(self, name))

    @classmethod
    def never(cls) -> RetryPolicy:
        """Sends each request once."""
        return cls(deadline=0.0, pause=0.0, pause_max=0.0)

    def call_timeout(self, attempt_timeout: float) -> float:
        """Seconds within which a call ends."""
        return max(attempt_timeout, self.deadline + min(attempt_timeout, LAST_ATTEMPT_SECONDS))

    def pause_after(self, attempts: int, retry_after: int | None) -> float:
        doubled = min(self.pause * 2.0 ** min(attempts - 1, 60), self.pause_max)
        varied = doubled * random.uniform(0.5, 1.0)
        return max(varied, float(retry_after or 0))
