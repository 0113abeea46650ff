"""Threads, checkpoints and differences as HTML for notebooks, in which stored text is never markup."""

from __future__ import annotations

from typing import Any

import backtrail

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
