"""A small shop on django-oscar. What concerns Stockade is marked."""

import os
import tomllib
from pathlib import Path

from oscar.defaults import *  # noqa: F403

BASE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("SHOP_DATA", ".stockade"))

DEBUG = os.environ.get("SHOP_DEBUG", "on") == "on"
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only-for-this-example")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "oscarshop.urls"
WSGI_APPLICATION = "oscarshop.wsgi.application"
SITE_ID = 1
USE_TZ, TIME_ZONE = True, "UTC"
STATIC_URL, STATIC_ROOT = "static/", DATA / "static"
MEDIA_URL, MEDIA_ROOT = "media/", DATA / "media"
EMAIL_BACKEND = os.environ.get("SHOP_EMAIL", "django.core.mail.backends.console.EmailBackend")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

#: Where the cards are charged: processor.py.
CARD_PROCESSOR = os.environ.get("SHOP_PROCESSOR", "http://127.0.0.1:8092")

if os.environ.get("SHOP_POSTGRES"):
    host, port, name = os.environ["SHOP_POSTGRES"].split(":")
    database = {"ENGINE": "django.db.backends.postgresql", "HOST": host, "PORT": port}
    database |= {"NAME": name, "USER": "postgres", "CONN_MAX_AGE": 60}
else:
    options = {"transaction_mode": "IMMEDIATE", "timeout": 20}
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": DATA / "oscar.db"}
    database |= {"OPTIONS": options}
# ATOMIC_REQUESTS must be off: the key of a checkout is committed before its request leaves.
DATABASES = {"default": database}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.flatpages",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.sites",
    "django.contrib.staticfiles",
    "stockade_django.apps.StockadeConfig",  # Stockade
    "oscarshop.hot.apps.HotConfig",  # Stockade
    "oscar.config.Shop",
    "oscar.apps.analytics.apps.AnalyticsConfig",
    "oscarshop.checkout.apps.CheckoutConfig",  # Stockade: instead of oscar's
    "oscar.apps.address.apps.AddressConfig",
    "oscar.apps.shipping.apps.ShippingConfig",
    "oscar.apps.catalogue.apps.CatalogueConfig",
    "oscar.apps.catalogue.reviews.apps.CatalogueReviewsConfig",
    "oscar.apps.communication.apps.CommunicationConfig",
    "oscarshop.partner.apps.PartnerConfig",  # Stockade: instead of oscar's
    "oscar.apps.basket.apps.BasketConfig",
    "oscar.apps.payment.apps.PaymentConfig",
    "oscar.apps.offer.apps.OfferConfig",
    "oscar.apps.order.apps.OrderConfig",
    "oscar.apps.customer.apps.CustomerConfig",
    "oscar.apps.search.apps.SearchConfig",
    "oscar.apps.voucher.apps.VoucherConfig",
    "oscar.apps.wishlists.apps.WishlistsConfig",
    "oscar.apps.dashboard.apps.DashboardConfig",
    "oscar.apps.dashboard.reports.apps.ReportsDashboardConfig",
    "oscar.apps.dashboard.users.apps.UsersDashboardConfig",
    "oscar.apps.dashboard.orders.apps.OrdersDashboardConfig",
    "oscar.apps.dashboard.catalogue.apps.CatalogueDashboardConfig",
    "oscar.apps.dashboard.offers.apps.OffersDashboardConfig",
    "oscar.apps.dashboard.partners.apps.PartnersDashboardConfig",
    "oscar.apps.dashboard.pages.apps.PagesDashboardConfig",
    "oscar.apps.dashboard.ranges.apps.RangesDashboardConfig",
    "oscar.apps.dashboard.reviews.apps.ReviewsDashboardConfig",
    "oscar.apps.dashboard.vouchers.apps.VouchersDashboardConfig",
    "oscar.apps.dashboard.communications.apps.CommunicationsDashboardConfig",
    "oscar.apps.dashboard.shipping.apps.ShippingDashboardConfig",
    "widget_tweaks",
    "haystack",
    "treebeard",
    "sorl.thumbnail",
    "django_tables2",
]
# The tables of `partner` are oscar's: only its strategy is ours.
MIGRATION_MODULES = {"partner": "oscar.apps.partner.migrations"}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.contrib.flatpages.middleware.FlatpageFallbackMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "oscar.apps.search.context_processors.search_form",
                "oscar.apps.checkout.context_processors.checkout",
                "oscar.apps.communication.notifications.context_processors.notifications",
                "oscar.core.context_processors.metadata",
            ]
        },
    }
]
AUTHENTICATION_BACKENDS = [
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}

OSCAR_HOMEPAGE = "/"
OSCAR_SHOP_NAME = "Hot and normal goods"
OSCAR_DEFAULT_CURRENCY = "EUR"
OSCAR_ALLOW_ANON_CHECKOUT = True
OSCAR_INITIAL_ORDER_STATUS = OSCAR_INITIAL_LINE_STATUS = "Pending"
OSCAR_ORDER_STATUS_PIPELINE = {
    "Pending": ("Paid", "Cancelled"),
    "Paid": ("Shipped", "Cancelled"),
    "Shipped": (),
    "Cancelled": (),
}
OSCAR_ORDER_STATUS_CASCADE = {"Paid": "Paid", "Shipped": "Shipped", "Cancelled": "Cancelled"}
OSCAR_LINE_STATUS_PIPELINE = OSCAR_ORDER_STATUS_PIPELINE


def _stockade() -> dict[str, object]:
    """From the environment, or else from the folder of `make up`."""
    run = DATA / "run.toml"
    values = tomllib.loads(run.read_text()) if run.exists() else {}
    if (DATA / "address").exists():
        values["url"] = (DATA / "address").read_text().strip()

    def found(name: str) -> str | None:
        return os.environ.get(f"STOCKADE_{name.upper()}", values.get(name))

    return {
        "URLS": [found("url") or "http://127.0.0.1:8080"],
        "JWT_SECRET": found("jwt_secret"),
        "PAYMENT_SECRET": found("payment_secret"),
        "ADMIN_TOKEN": found("admin_token"),
        "SHOP": "oscarshop.hot.shop.OscarShop",
        "KEY_PREFIX": os.environ.get("SHOP_KEY_PREFIX", "oscar"),
        "LEASE_SECONDS": float(os.environ.get("SHOP_LEASE_SECONDS", "30")),
    }


STOCKADE = _stockade()
