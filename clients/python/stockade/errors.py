"""What can go wrong with a call, and whether a repeat is safe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .answers import RETURNS_MONEY, is_decision, may_have_run

if TYPE_CHECKING:
    from .models import Cart, Order


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
    #: Of a refused order or cart: whether its key is decided for good. If not, nothing was written, and a
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
    def settles_key(self) -> bool:
        """Whether this is the service's own decision, which counts for earlier attempts as well.

        Ask it after a call whose outcome was unknown, in the call that repeats it: a refusal with
        status 401, 403, 404 or 429, or one of a proxy, says nothing about the call before.
        """
        return False

    @property
    def returns_money(self) -> bool:
        """Whether a report of a payment was refused so that its money must be returned.

        Other refusals of a report, also those that settle it, say nothing about the money: it may be
        another order's, or returned already.
        """
        return False

    @property
    def retry_after(self) -> int | None:
        """Seconds that the service asks to wait before a repeat."""
        return self.problem.retry_after if self.problem else None

    def is_code(self, code: str) -> bool:
        """Whether this is a refusal with the given code."""
        return False


class Refused(Error):
    """The request was refused, and no attempt of this call has taken effect.

    If `settles_key`, the service has decided. Otherwise something before the decision has refused
    the request, such as a token that has expired (401) or a limit of requests (429): mend that, or
    wait for `retry_after`, and send the same request again.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"the service refused the request: {problem}")
        self.problem: Problem = problem

    def is_code(self, code: str) -> bool:
        return self.problem.code == code

    @property
    def is_final(self) -> bool:
        # `final` means something for a decision only.
        return self.problem.final or not self._is_decision

    @property
    def settles_key(self) -> bool:
        return self.is_final and self._is_decision

    @property
    def returns_money(self) -> bool:
        return self.settles_key and self.problem.code in RETURNS_MONEY

    @property
    def _is_decision(self) -> bool:
        return is_decision(self.problem.status, self.problem.code)


class NoLongerHeld(Error):
    """The key is that of an order or a cart which has ended and holds no units.

    It was placed by an earlier request, and was cancelled, refunded or not paid in time since. The
    key stays its own for good, so a new attempt of the buyer needs a new key.
    """

    def __init__(self, order: Order | None = None, cart: Cart | None = None) -> None:
        super().__init__(order, cart)
        #: The order as it is now, if an order was placed.
        self.order = order
        #: The cart as it is now, if a cart was placed.
        self.cart = cart

    @property
    def state(self) -> str:
        """The state of the order or the cart: `cancelled`, `expired`, `refund_due`, `refunded`."""
        ended = self.order or self.cart
        return ended.state if ended else ""

    @property
    def settles_key(self) -> bool:
        return True

    def __str__(self) -> str:
        what = "order" if self.order else "cart"
        return f"the {what} of this key is {self.state}: a new {what} needs a new key"


class OutcomeUnknown(Error):
    """The request may or may not have taken effect. Repeat it, with the same key."""

    def __init__(
        self, cause: Problem | Exception, attempts: int = 1, *, answer: Error | None = None
    ) -> None:
        super().__init__(cause, attempts)
        #: What happened to the attempt whose outcome is unknown.
        self.cause = cause
        #: Number of times that the request was sent.
        self.attempts = attempts
        #: How a later attempt ended, if that settles nothing: a 401, 403, 404 or 429, `unavailable`,
        #: or the answer of a proxy.
        self.answer = answer
        self.problem = cause if isinstance(cause, Problem) else None

    def __str__(self) -> str:
        later = f"; a later attempt: {self.answer}" if self.answer else ""
        return (
            f"the outcome is unknown after {self.attempts} attempts, "
            f"repeat the same request: {self.cause or type(self.cause).__name__}{later}"
        )

    @property
    def may_have_run(self) -> bool:
        """False if each attempt was answered that nothing ran (`unavailable`)."""
        return self.problem is None or may_have_run(self.problem.status, self.problem.code)

    @property
    def retry_after(self) -> int | None:
        return self.answer.retry_after if self.answer else super().retry_after

    @property
    def is_outcome_unknown(self) -> bool:
        return True

    @property
    def is_retryable(self) -> bool:
        """False for status 500: a repeat does not fix an internal defect."""
        return self.problem is None or self.problem.status in (408, 502, 503, 504)


class Contract(Error):
    """The answer is not what the API promises: a defect, or not a Stockade at all.

    After a success status of the service the request has taken effect.
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
