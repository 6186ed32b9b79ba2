from django.apps import AppConfig


class StockadeConfig(AppConfig):
    name = "stockade_django"
    label = "stockade"
    verbose_name = "Stockade"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401
