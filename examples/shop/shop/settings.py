"""Where Stockade is, and the secrets that the shop shares with it."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """A real shop reads these from its own configuration."""

    url: str
    admin_token: str
    jwt_secret: str
    stripe_secret: str

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """From the environment, or else from the folder of `make up`."""
        files = [folder / "run.toml", folder / "stockade.toml"]
        values: dict[str, str] = {}
        for file in files:
            if file.exists():
                values |= tomllib.loads(file.read_text())
        if (folder / "address").exists():
            values["url"] = (folder / "address").read_text().strip()
        names = ("url", "admin_token", "jwt_secret", "stripe_secret")
        found = {
            name: os.environ.get(f"STOCKADE_{name.upper()}", values.get(name)) for name in names
        }
        for name, value in found.items():
            if not value:
                raise SystemExit(
                    f"STOCKADE_{name.upper()} is not set, and {folder} does not have it: "
                    "is `make up` running?"
                )
        return cls(**{name: str(value) for name, value in found.items()})
