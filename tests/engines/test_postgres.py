"""The PostgreSQL engine keeps the contract, blocking and awaiting."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import ClassVar

import pytest

from clew.engines.postgres import PostgresEngine
from clew.testing import drive
from clew.testing.contract import DurableEngineContract
from fix_servers import PostgresServer


def private(place: Path) -> str:
    """A schema for the store of one test."""
    return "t_" + hashlib.blake2b(str(place).encode(), digest_size=9).hexdigest()


class OnPostgres(DurableEngineContract):
    url: str

    @pytest.fixture(autouse=True)
    def _server(self, postgres_server: PostgresServer) -> None:
        self.url = postgres_server.url

    def make_engine(self, place: Path) -> PostgresEngine:
        return PostgresEngine(self.url, schema=private(place), asynchronous=self.colours == ("awaited",))


class TestPostgres(OnPostgres):
    pass


class TestAsyncPostgres(OnPostgres):
    colours: ClassVar[tuple[drive.Colour, ...]] = ("awaited",)
