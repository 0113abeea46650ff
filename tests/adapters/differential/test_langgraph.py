"""Each program gives on backtrail exactly what it gives on LangGraph's own savers."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.store import Store

from .driver import Driver
from .langgraph_programs import PROGRAMS
from .observation import comparable


async def results(saver: Any, *, sync: bool) -> dict[str, str]:
    driver = Driver(saver, sync=sync)
    return {name: comparable(await program(driver, name)) for name, program in PROGRAMS.items()}


@cache
def expected() -> dict[str, str]:
    return asyncio.run(results(InMemorySaver(), sync=True))


def assert_as_expected(found: dict[str, str]) -> None:
    different = [name for name in PROGRAMS if found[name] != expected()[name]]
    assert not different, f"{different[0]}: {_first_difference(found[different[0]], expected()[different[0]])}"


def _first_difference(one: str, other: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"…{one[max(0, at - 200) : at + 100]}…, expected …{other[max(0, at - 200) : at + 100]}…"


def test_every_program_gives_the_same_on_backtrail(open_store: Callable[[], Any]) -> None:
    async def run() -> dict[str, str]:
        async with open_store() as store:
            return await results(BacktrailSaver(store), sync=isinstance(store, Store))

    assert_as_expected(asyncio.run(run()))


def test_an_async_graph_on_a_store_gives_the_same(store: Any) -> None:
    assert_as_expected(asyncio.run(results(BacktrailSaver(store), sync=False)))


def test_the_stock_savers_agree_with_each_other() -> None:
    async def with_async_sqlite() -> dict[str, str]:
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            return await results(saver, sync=False)

    assert_as_expected(asyncio.run(results(InMemorySaver(), sync=False)))
    assert_as_expected(asyncio.run(with_async_sqlite()))
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        assert_as_expected(asyncio.run(results(SqliteSaver(connection), sync=True)))
