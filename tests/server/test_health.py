"""The health of a store: what its janitor did, whichever process it works in, as JSON and for Prometheus."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any

import backtrail
from fix_inspector import inspector

NOW = backtrail.Retention(keep_last=2, undo_window=dt.timedelta(0))


def test_the_janitor_of_another_process_is_shown_with_what_it_freed(tmp_path: Path) -> None:
    with (
        backtrail.open(tmp_path / "s.db") as worker,
        backtrail.open(tmp_path / "s.db") as store,
        inspector(store, metrics=True) as served,
    ):
        assert served.get("health")["janitor"] is None
        thread: backtrail.Thread[Any] = worker.thread("t")
        for n in range(6):
            thread.save({"n": n})
        with worker.janitor(every=3600, retention=NOW) as janitor:
            while not janitor.status.rounds:
                time.sleep(0.01)
            while (found := served.get("health")["janitor"]) is None:
                time.sleep(0.01)
            assert (found["running"], found["every"], found["rounds"], found["errors"]) == (True, 3600, 1, 0)
            assert found["freed"]["checkpoints"] == 4
            assert found["freed"]["bytes"] > 0
            last, due = (dt.datetime.fromisoformat(found[name]) for name in ("last_round", "next_round"))
            assert dt.timedelta(minutes=59) < due - last < dt.timedelta(minutes=61)
            assert found["last_error"] is None
        found = served.get("health")["janitor"]
        assert (found["running"], found["next_round"]) == (False, None)
        text = served.client.get("/metrics").text
        assert "backtrail_janitor_rounds 1\n" in text
        assert "backtrail_janitor_freed_checkpoints 4\n" in text
        assert [thread["id"] for thread in served.get("threads")["threads"]] == ["t"]
        assert served.get("health")["stats"]["threads"] == 1


def test_the_growth_is_watched_while_a_page_is_open(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db") as store, inspector(store) as served:
        with served.client.stream("GET", "/api/v1/events") as events:
            assert next(events.iter_lines()) == "event: hello"
        before = time.time()
        (figure,) = served.get("health")["growth"]
        assert figure[0] <= before, "it was kept by the page that is told of changes, not by this request"
        assert figure[1] > 0
