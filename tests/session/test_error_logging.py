"""errors="log": writes that fail are logged and counted, reads still raise."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import backtrail


def test_a_failed_write_is_logged_with_the_session_and_counted(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    session = store.session("loop-7", errors="log")
    session.add("user", "kept")
    with caplog.at_level(logging.ERROR, logger="backtrail.session"):
        assert session.add("user", object()) is None
        assert session.append("not a message") is None
        assert session.truncate(keep_last=-1) is None
    assert len(caplog.records) == 3
    assert "loop-7" in caplog.text
    assert "add failed" in caplog.text
    assert session.stats()["failed_writes"] == 3
    assert store.stats()["failed_writes"] == 3
    assert session.messages() == [{"role": "user", "content": "kept"}]
    session.add("user", "goes on")
    assert session.count() == 2


def test_reads_raise_even_with_errors_log(opener: Any) -> None:
    store = opener()
    session = store.session("s", errors="log")
    session.add("user", "x")
    with pytest.raises(backtrail.InvalidInput):
        session.messages(last="all")
    with pytest.raises(backtrail.NoCheckpoint):
        session.rewind("nothing")
    store.close()
    with pytest.raises(backtrail.Unavailable):
        session.messages()
    assert session.add("user", "lost, and said so") is None


def test_a_failed_write_raises_by_default(store: Any) -> None:
    with pytest.raises(backtrail.EncodeError):
        store.session("s").add("user", object())
    assert store.stats()["failed_writes"] == 0
