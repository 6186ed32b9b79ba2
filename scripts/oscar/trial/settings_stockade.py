"""The shop of examples/oscar, as it is."""

import os

from oscarshop.settings import *  # noqa: F403

if "TRIAL_KILLS" in os.environ:
    INSTALLED_APPS.append("trial.kills.apps.KillsConfig")  # noqa: F405
