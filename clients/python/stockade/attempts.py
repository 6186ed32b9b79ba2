"""What is known of a request after its attempts."""

from __future__ import annotations

import time
from copy import copy

from .errors import Error, OutcomeUnknown, Refused

#: Seconds for which a lost attempt may still take units: twice the service's bound.
_SETTLED = 10.0


class Attempts:
    """The attempts of one request. After one whose answer was lost, not every error is the truth.

    A refusal by something before the service, or by a check that comes before the key, says nothing
    about the lost attempt. The outcome stays unknown until the service itself decides.
    """

    def __init__(self, *, reads: bool = False) -> None:
        """`reads`: the request changes nothing, so a lost attempt of it leaves nothing behind."""
        self._reads = reads
        self._lost: tuple[float, OutcomeUnknown] | None = None
        self.count = 0

    def begin(self) -> None:
        """Counts an attempt that is about to be sent."""
        self.count += 1

    def judge(self, error: Error) -> Error:
        """The error that is true for all attempts, after the latest has ended with `error`."""
        if isinstance(error, OutcomeUnknown) and (error.may_have_run or self._lost is None):
            if error.may_have_run and not self._reads:
                self._lost = (time.monotonic(), error)
            return OutcomeUnknown(error.cause, self.count)
        if self._lost is None or self._settles(error, self._lost[0]):
            return error
        return OutcomeUnknown(self._lost[1].cause, self.count, answer=error)

    def judge_part(self, error: Error) -> Error:
        """`judge` for one of several parts of the latest response. The others do not count."""
        return copy(self).judge(error)

    def _settles(self, error: Error, lost_at: float) -> bool:
        if isinstance(error, Refused) and not error.is_final:
            # By then a lost attempt has taken its units, and a repeat would have found them.
            return time.monotonic() - lost_at > _SETTLED
        return error.settles_key
