"""Oscar's own checkout and stock."""

from oscarshop.settings import *  # noqa: F403

OWN = {
    "oscarshop.checkout.apps.CheckoutConfig": "trial.plain_checkout.apps.CheckoutConfig",
    "oscarshop.partner.apps.PartnerConfig": "oscar.apps.partner.apps.PartnerConfig",
}
INSTALLED_APPS = [OWN.get(app, app) for app in INSTALLED_APPS]  # noqa: F405
