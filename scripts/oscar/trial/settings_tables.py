"""The tables of the shop as they are now: the history of oscar's takes longer than a rush."""

from oscarshop.settings import *  # noqa: F403


class WithoutHistory(dict[str, None]):
    """Every app but that of clients/django has no migrations."""

    def __contains__(self, app: object) -> bool:
        return app != "stockade_django"

    def __getitem__(self, app: str) -> None:
        return None


MIGRATION_MODULES = WithoutHistory()
