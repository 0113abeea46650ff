"""Threads, checkpoints and differences as HTML for notebooks, in which stored text is never markup."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import backtrail
import backtrail.aio

EVIL = "<script>alert(1)</script>"


def test_a_notebook_shows_tables_without_markup_of_what_was_stored() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread(EVIL)
        assert "0 steps" in thread._repr_html_()
        first = thread.save({EVIL: EVIL}, label=EVIL, tags=[EVIL], custom={EVIL: EVIL})
        thread.save({EVIL: "another", "half": "\ud83d"})
        shown = [thread._repr_html_(), first._repr_html_(), thread.diff()._repr_html_()]
    for text in shown:
        assert "<script" not in text
        assert "&lt;script&gt;" in text
        text.encode()
    assert "2 steps" in shown[0]
    assert "another" in shown[2]


def test_async_objects_show_what_is_known_without_awaiting(tmp_path: Path) -> None:
    shown = asyncio.run(_shown(tmp_path))
    for text in shown:
        assert "<script" not in text
        assert "await " in text
    assert "memory" in shown[0]
    assert "&lt;script&gt;" in shown[2]
    assert "iteration" in shown[3]
    assert str(tmp_path) in shown[4]


async def _shown(tmp_path: Path) -> list[str]:
    async with await backtrail.aio.open("memory:") as store:
        thread = store.thread(EVIL)
        assert "none yet" in thread._repr_html_()
        saved = await thread.save({"n": 1})
        assert saved.id in thread._repr_html_()
        run = store.run("job")
        workspace = await store.workspace(tmp_path)
        html = [store._repr_html_(), thread._repr_html_(), store.session(EVIL)._repr_html_(), run._repr_html_()]
        return [*html, workspace._repr_html_()]
