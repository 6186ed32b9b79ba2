"""A shop that has nothing but checkouts."""

SECRET_KEY = "only-for-these-tests"
USE_TZ = True
ROOT_URLCONF = "tests.urls"
ALLOWED_HOSTS = ["testserver"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "stockade_django.apps.StockadeConfig",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
#: Without a service the tests that need none still run.
STOCKADE = {
    "JWT_SECRET": "none",
    "PAYMENT_SECRET": "none",
    "ADMIN_TOKEN": "none",
    "SHOP": "tests.shop.TestShop",
}
