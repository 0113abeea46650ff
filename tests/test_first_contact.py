"""What a new user meets first: opening, looking around, the command line's defaults, and mistakes that explain
themselves."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.cli.context import DEFAULT_STORE

ROOT = Path(__file__).parent.parent


def test_the_readme_the_demo_and_the_command_line_have_the_same_default_store() -> None:
    opened = re.findall(r"open\(\"([^\"]+)\"\)", (ROOT / "README.md").read_text())
    assert set(opened) == {DEFAULT_STORE}
    assert f'folder / "{DEFAULT_STORE}"' in (ROOT / "examples/demo.py").read_text()
    assert f'open("{DEFAULT_STORE}")' in (backtrail.__doc__ or "")


def test_an_unknown_kind_is_refused_and_the_known_ones_are_listed(store: Any) -> None:
    for wrong in ("sessions", "", "Thread", 3, ["run"]):
        with pytest.raises(backtrail.InvalidInput, match="there are thread, session, run, workspace"):
            store.threads(kind=wrong)
    store.session("s").add("user", "hello")
    assert [info.id for info in store.threads(kind="session")] == ["s"]


def test_a_text_that_is_searched_for_is_not_taken_for_a_tag(store: Any) -> None:
    with pytest.raises(TypeError, match="positional"):
        store.thread("t").find("x")


@pytest.mark.parametrize("call", [repr, str])
def test_a_store_shows_where_it_is_and_no_secret(tmp_path: Path, call: Any) -> None:
    file, folder = tmp_path / "a b.db", tmp_path / "lines"
    with backtrail.open(file) as store:
        assert call(store) == f"<backtrail.Store sqlite {str(file)!r}>"
    assert call(store).endswith("closed>")
    with backtrail.open(f"jsonl:{folder}", namespace="acme") as store:
        assert call(store) == f"<backtrail.Store jsonl {str(folder)!r}>"
    with backtrail.open("memory:") as store:
        assert call(store) == "<backtrail.Store memory>"


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_store_on_a_server_shows_no_password(request: pytest.FixtureRequest, kind: str) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    with backtrail.open(server.url, **{"prefix" if kind == "redis" else "schema": "seen"}) as store:
        shown = repr(store)
    assert re.fullmatch(rf"<backtrail.Store {kind} '[a-z]+://[^@?]*\?(prefix|schema)=seen'>", shown), shown


def test_an_async_workspace_may_be_awaited_or_used_at_once(tmp_path: Path) -> None:
    async def both() -> None:
        async with await backtrail.aio.open("memory:") as store:
            one = await store.workspace(tmp_path)
            assert (await one.snapshot("first")).label == "first"
            other = store.workspace(tmp_path)
            assert [snapshot.label for snapshot in await other.snapshots()] == ["first"]
            assert await other is other

    asyncio.run(both())
