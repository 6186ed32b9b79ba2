from oscar.apps.partner.receivers import *  # noqa: F403
