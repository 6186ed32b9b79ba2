"""The shop's own database: carts, checkouts, orders, and the webhooks that it has handled.

Stockade decides who gets a unit. Everything else of a purchase is here, in the shop.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, buyer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS cart_lines (
    buyer TEXT NOT NULL, item TEXT NOT NULL, quantity INTEGER NOT NULL, PRIMARY KEY (buyer, item));
-- `state` is `placing`, `refused`, `held`, `released`, `paid`, `refund_due` or `refunded`. The cart at
-- Stockade is null until its outcome is known.
CREATE TABLE IF NOT EXISTS checkouts (
    id TEXT PRIMARY KEY, buyer TEXT NOT NULL, state TEXT NOT NULL, reason TEXT,
    stockade_cart TEXT UNIQUE, expires_at TEXT,
    created_at TEXT NOT NULL DEFAULT (datetime('now')));
CREATE TABLE IF NOT EXISTS lines (
    checkout TEXT NOT NULL REFERENCES checkouts (id), item TEXT NOT NULL, quantity INTEGER NOT NULL,
    amount INTEGER NOT NULL, PRIMARY KEY (checkout, item));
-- What the warehouse ships: one for a checkout that is paid.
CREATE TABLE IF NOT EXISTS orders (
    number INTEGER PRIMARY KEY, checkout TEXT NOT NULL UNIQUE REFERENCES checkouts (id),
    created_at TEXT NOT NULL DEFAULT (datetime('now')));
CREATE TABLE IF NOT EXISTS handled_webhooks (id TEXT PRIMARY KEY);
-- The fake Stripe's own tables.
CREATE TABLE IF NOT EXISTS stripe_sessions (
    id TEXT PRIMARY KEY, checkout TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    return_to TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS stripe_events (
    id TEXT PRIMARY KEY, body TEXT NOT NULL, delivered INTEGER NOT NULL DEFAULT 0);
"""


class Database:
    """One connection, which the threads of the shop use in turn."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.executescript("PRAGMA journal_mode = WAL;" + SCHEMA)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of its statements take effect, or none."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def all(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: object) -> sqlite3.Row | None:
        return next(iter(self.all(sql, *values)), None)

    def run(self, sql: str, *values: object) -> None:
        with self.transaction() as connection:
            connection.execute(sql, values)
