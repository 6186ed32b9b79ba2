from django.apps import AppConfig


class HotConfig(AppConfig):
    name = "oscarshop.hot"
    label = "hot"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import signals  # noqa: F401
