"""The PostgreSQL engine keeps the contract, blocking and awaiting, also behind a pooler in transaction mode."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from psycopg import sql

from backtrail.engines.postgres import PostgresEngine
from backtrail.testing import call_modes
from backtrail.testing.contract import DurableEngineContract
from backtrail.testing.servers import PostgresServer
from fix_pooler import Pooler


class OnPostgres(DurableEngineContract):
    """One schema for all cases, emptied before each: making one takes much longer than a case."""

    url: str
    schema: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _server(self, postgres_server: PostgresServer) -> None:
        self.url = postgres_server.url
        with psycopg.connect(self.url, autocommit=True) as admin:
            tables = admin.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'store'", [self.schema]
            )
            for (table,) in tables.fetchall():
                admin.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(self.schema, table)))

    def make_engine(self, directory: Path) -> PostgresEngine:
        return PostgresEngine(self.url, schema=self.schema, asynchronous=self.modes == ("awaited",))


class TestPostgres(OnPostgres):
    schema = "contract_direct"
    modes: ClassVar[tuple[call_modes.Mode, ...]] = ("direct",)


class TestPostgresThreaded(OnPostgres):
    schema = "contract_threaded"
    modes: ClassVar[tuple[call_modes.Mode, ...]] = ("threaded",)


class TestAsyncPostgres(OnPostgres):
    schema = "contract_awaited"
    modes: ClassVar[tuple[call_modes.Mode, ...]] = ("awaited",)


class BehindAPooler(OnPostgres):
    """Each transaction gets another session: none of the calls may count on what one keeps."""

    @pytest.fixture(autouse=True)
    def _pooler(self, _server: None, pooler: Pooler) -> None:
        self.url = self.url.replace(str(pooler.target), str(pooler.port))


class TestPostgresPooled(BehindAPooler):
    schema = "contract_pooled"
    modes: ClassVar[tuple[call_modes.Mode, ...]] = ("direct",)


class TestAsyncPostgresPooled(BehindAPooler):
    schema = "contract_pooled_awaited"
    modes: ClassVar[tuple[call_modes.Mode, ...]] = ("awaited",)
