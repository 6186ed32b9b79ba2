"""What an answer says about the attempts before it.

An attempt whose answer was lost may have taken effect. Only the service's own decision then counts
for all attempts, and codes that are checked before the key decide nothing. `clients/answers.json`
has the reason for each code.
"""

from __future__ import annotations

from ._codes import DECISIONS, NOTHING_RAN, RETURNS_MONEY

__all__ = [
    "DECISIONS",
    "NOTHING_RAN",
    "RETURNS_MONEY",
    "is_decision",
    "leaves_open",
    "may_have_run",
]


def leaves_open(status: int) -> bool:
    """Whether a repeat of the request is needed to know what became of it."""
    return status == 408 or 500 <= status <= 599


def is_decision(status: int, code: str) -> bool:
    """Whether the answer counts for all attempts of the request, also for those that were lost."""
    return 400 <= status <= 499 and code in DECISIONS


def may_have_run(status: int, code: str) -> bool:
    """Whether the request may have taken effect although it was answered with an error."""
    return leaves_open(status) and code not in NOTHING_RAN
