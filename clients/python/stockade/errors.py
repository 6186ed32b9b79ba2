"""What can go wrong with a call, and whether a repeat is safe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """The body of a response that is no success (RFC 9457)."""

    status: int
    #: What programs go by. Empty: the body was no problem+json, so a proxy has answered.
    code: str
    #: What people read.
    detail: str = ""
    #: The field or header of the request that was refused.
    field: str | None = None
    #: The item because of which a cart was refused.
    item: str | None = None
    #: Of a refused cart: whether its key is decided for good. If not, nothing was written, and a
    #: repeat with the same key is decided anew.
    final: bool = True
    #: Seconds that the service asks to wait before a repeat.
    retry_after: int | None = None

    def __str__(self) -> str:
        return f"{self.status} {self.code or 'no problem+json'}: {self.detail}".rstrip(": ")


class Error(Exception):
    """A call that did not succeed."""

    #: What the service reported, if it did.
    problem: Problem | None = None

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether the request may have taken effect although it failed."""
        return False

    @property
    def is_retryable(self) -> bool:
        """Whether a repeat of the same request can find out what happened."""
        return False

    @property
    def is_final(self) -> bool:
        """False for a refusal that wrote nothing: keep the key, a repeat is decided anew."""
        return True

    @property
    def retry_after(self) -> int | None:
        """Seconds that the service asks to wait before a repeat."""
        return self.problem.retry_after if self.problem else None

    def is_code(self, code: str) -> bool:
        """Whether this is a refusal with the given code."""
        return False


class Refused(Error):
    """The service decided against the request. A repeat of it changes nothing.

    The exception is `too_many_requests`: the same request may be sent again after `retry_after`.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"the service refused the request: {problem}")
        self.problem: Problem = problem

    def is_code(self, code: str) -> bool:
        return self.problem.code == code

    @property
    def is_final(self) -> bool:
        return self.problem.final


class OutcomeUnknown(Error):
    """The request may or may not have taken effect. Repeat it, with the same key."""

    def __init__(self, cause: Problem | Exception, attempts: int = 1) -> None:
        super().__init__(cause, attempts)
        self.cause = cause
        #: Number of times that the request was sent.
        self.attempts = attempts
        self.problem = cause if isinstance(cause, Problem) else None

    def __str__(self) -> str:
        return (
            f"the outcome is unknown after {self.attempts} attempts, "
            f"repeat the same request: {self.cause or type(self.cause).__name__}"
        )

    @property
    def is_outcome_unknown(self) -> bool:
        return True

    @property
    def is_retryable(self) -> bool:
        """False for status 500: a repeat does not fix an internal defect."""
        return self.problem is None or self.problem.status in (408, 502, 503, 504)


class Contract(Error):
    """The service sent what the API does not promise: a defect, or not a Stockade at all.

    After a success status the request has taken effect.
    """

    def __init__(self, status: int, violation: str) -> None:
        super().__init__(f"the response {status} violates the API: {violation}")
        self.status = status
        self.violation = violation


class InvalidInput(Error, ValueError):
    """The request was never sent, because a value cannot be part of one."""

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field}: expected {expected}")
        self.field = field
        self.expected = expected
