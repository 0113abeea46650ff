"""`postgresql://`: a store in a schema of a PostgreSQL database, 13 or later.

Everything atomic is one SQL function, called in one statement: one transaction and one round trip. Nothing depends on
the session, so connections may go through a pooler in transaction mode.
"""

from __future__ import annotations

from backtrail.errors import MissingExtra

try:
    import psycopg as _driver  # noqa: F401
except ImportError as error:
    raise MissingExtra("the PostgreSQL engine", "postgres") from error

from backtrail.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
