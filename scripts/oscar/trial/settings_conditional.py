"""Oscar's own checkout, with a conditional UPDATE of the stock."""

from trial.settings_plain import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "trial.conditional.apps.ConditionalConfig"]  # noqa: F405
