"""Kills the worker that comes first to a point, where the file of that name asks for it."""

import os
import signal
from collections.abc import Callable
from typing import Any

from django.apps import AppConfig


def die_if_asked(point: str) -> None:
    try:
        os.unlink(os.path.join(os.environ["TRIAL_KILLS"], point))
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def before(point: str, step: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        die_if_asked(point)
        return step(*args, **kwargs)

    return run


def after(point: str, step: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        die_if_asked(point)
        return result

    return run


class KillsConfig(AppConfig):
    name = "trial.kills"

    def ready(self) -> None:
        from oscarshop import card
        from stockade_django import checkouts

        checkouts.charging = before("held", checkouts.charging)
        card.charge = after("charged", card.charge)
        checkouts.report = before("placed", checkouts.report)
