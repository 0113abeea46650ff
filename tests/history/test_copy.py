"""Copies from any store to any other, of what is missing, beside writers, whatever the keys."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.errors import Conflict, InvalidInput

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


def build(store: Any) -> dict[str, Any]:
    thread = store.thread("t")
    for n in range(70):
        thread.append("messages", [{"n": n, "text": f"message {n} about this and that " * 10}])
    thread.update({"paper": "long " * 20_000, "plan": "a plan " * 40}, label="with paper", custom={"a": 1})
    thread.update({f"key {n}": f"value {n} " * 30 for n in range(80)})
    thread.update({f"paper {n}": f"{n} " * 20_000 for n in range(40)}, tags=["big"])
    thread.annotate(3, label="third")
    thread.delete(5)
    fork = thread.fork("fork", at=8)
    fork.append("messages", [{"n": "fork"}])
    thread.rewind(10)
    thread.append("messages", [{"n": "after the rewind"}])
    thread.undo()
    store.session("chat").add("user", "hello")
    return everything(store)


def everything(store: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for info in store.threads():
        thread = store.thread(info.id)
        history = thread.history(all=True)
        found[info.id] = (info, [(c, thread.load(c)) for c in history])
    return found


CODECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "zstd": {"compression": "zstd"},
    "sealed": {"key": KEY},
    "sealed otherwise": {"key": OTHER, "compression": "zstd"},
}


@pytest.mark.parametrize("there", CODECS)
@pytest.mark.parametrize("here", CODECS)
def test_a_copy_has_everything(here: str, there: str, tmp_path: Path) -> None:
    with (
        backtrail.open("memory:", **CODECS[here]) as source,
        backtrail.open(tmp_path / "b.db", durability="normal", **CODECS[there]) as target,
    ):
        before = build(source)
        report = source.copy_to(target)
        assert report.threads == 3
        after = everything(target)
        assert _without_written(after) == _without_written(before)
        assert target.verify().ok
        again = source.copy_to(target)
        assert (again.threads, again.rows, again.blobs) == (0, 0, 0)
        source.thread("t").append("messages", [{"n": "later"}])
        source.thread("t").annotate(3, label="said later")
        more = source.copy_to(target)
        assert (more.threads, more.rows) == (1, 1)
        assert _without_written(everything(target)) == _without_written(everything(source))
        target.thread("t").append("messages", [{"n": "on its own"}])
        with pytest.raises(Conflict):
            source.copy_to(target)


def _without_written(found: dict[str, Any]) -> dict[str, Any]:
    return {name: (info, [(_bare(c), state) for c, state in states]) for name, (info, states) in found.items()}


def _bare(checkpoint: Any) -> tuple[Any, ...]:
    c = checkpoint
    return (c.id, c.parent_id, c.step, c.created_at, c.label, c.tags, c.custom, c.size, c.files, c.thread_id)


def test_every_engine_can_be_copied_from_sync_and_async(store: Any, tmp_path: Path) -> None:
    before = build(store)
    store.copy_to(str(tmp_path / "copy.db"), durability="normal")
    with backtrail.open(tmp_path / "copy.db") as copy:
        assert everything(copy) == before


def test_a_pruned_store_can_be_copied(tmp_path: Path) -> None:
    with backtrail.open("memory:", key=KEY) as source, backtrail.open("memory:") as target:
        build(source)
        source.prune(backtrail.Retention(keep_last=2))
        source.copy_to(target)
        assert target.verify().ok
        assert _without_written(everything(target)) == _without_written(everything(source))


def test_a_copy_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    with backtrail.open("memory:") as source:
        for n in range(20):
            source.thread(f"t{n:02}").save({"n": n})

        def stop(done: int, total: int) -> None:
            assert total == 20
            if done == 7:
                raise Killed

        with backtrail.open(tmp_path / "b.db", durability="normal") as target:
            with pytest.raises(Killed):
                source.copy_to(target, progress=stop)
            assert target.count() == 7
            assert source.copy_to(target).threads == 13
            assert everything(target) == everything(source)


def test_writers_go_on_while_a_store_is_copied(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "a.db", durability="normal") as source, backtrail.open("memory:") as target:
        names = [f"t{n}" for n in range(4)]
        for name in names:
            source.thread(name).save({"messages": [{"n": "first", "text": "x" * 500}]})
        stop = threading.Event()
        failed: list[Exception] = []

        def write(name: str) -> None:
            try:
                thread, n = source.thread(name), 0
                while not stop.is_set():
                    thread.append("messages", [{"n": n, "text": f"{n} " * 100}])
                    n += 1
                    if n % 50 == 0:
                        source.prune(backtrail.Retention(keep_last=5))
            except Exception as error:  # noqa: BLE001  # told by the test
                failed.append(error)

        writers = [threading.Thread(target=write, args=(name,)) for name in names]
        for writer in writers:
            writer.start()
        try:
            for _ in range(6):
                source.copy_to(target)
                report = target.verify()
                assert report.ok, str(report)
                for name in names:
                    said = [m["n"] for m in target.thread(name).load()["messages"]]
                    assert said == ["first", *range(len(said) - 1)]
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        assert not failed
        source.copy_to(target)
        assert {i.id: i.head for i in target.threads()} == {i.id: i.head for i in source.threads()}


def test_a_thread_that_is_pruned_and_saved_to_while_it_is_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The narrowest race: all of it happens between the look at the heads and the one at the rows."""
    with backtrail.open("memory:") as source, backtrail.open("memory:") as target:
        thread = source.thread("t")
        for n in range(30):
            thread.append("messages", [{"n": n, "text": "x" * 500}])
        engine = source._core.context.engine
        steps, meanwhile = engine.steps, []

        async def looked(*args: Any, **options: Any) -> Any:
            if not meanwhile:
                meanwhile.append(True)
                source.prune(backtrail.Retention(keep_last=5))
                thread.append("messages", [{"n": 30}])
            return await steps(*args, **options)

        monkeypatch.setattr(engine, "steps", looked)
        source.copy_to(target)
        assert target.verify().ok
        assert everything(target) == everything(source)


@pytest.mark.parametrize("options", [{}, {"key": bytes(range(32))}], ids=["plain", "sealed"])
def test_what_was_swept_since_the_last_copy_is_gone_from_the_next(options: dict[str, Any]) -> None:
    with backtrail.open("memory:") as source, backtrail.open("memory:", **options) as target:
        thread, other = source.thread("t"), source.thread("other")
        for n in range(20):
            thread.save({"n": n, "text": "x" * 500})
            other.save({"n": n})
        thread.rewind(12)
        thread.save({"n": "aside"})
        thread.fork("fork", at=3).save({"n": "fork"})
        source.copy_to(target)
        before = target.thread("other").history()
        source.prune(backtrail.Retention(keep_last=2, undo_window=dt.timedelta(0)))
        thread.save({"n": "after"})
        other.save({"n": "after"})
        source.copy_to(target)
        assert target.verify().ok
        assert everything(target) == everything(source)
        assert [c.id for c in target.thread("other").history()][:-1] == [c.id for c in before[-2:]]
        target.prune()
        assert target.stats()["rows"] == source.stats()["rows"]
        assert target.verify().ok


def test_what_is_swept_during_the_first_copy_is_not_counted_by_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    with backtrail.open("memory:") as source, backtrail.open("memory:") as target:
        thread = source.thread("t")
        for n in range(6):
            thread.save({"n": n})
        thread.rewind(2)
        engine = target._core.context.engine
        commit, swept = engine.commit, []

        async def sweep_behind_it(one: Any) -> None:
            await commit(one)
            if one.rows and not swept:
                swept.append(True)
                for checkpoint in thread.history(all=True)[2:]:
                    thread.delete(checkpoint)
                source.compact()

        monkeypatch.setattr(engine, "commit", sweep_behind_it)
        source.copy_to(target)
        assert swept
        assert target.verify().ok
        assert everything(target) == everything(source)


def test_what_the_source_has_lost_is_not_taken_from_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    with backtrail.open("memory:") as source, backtrail.open("memory:") as target:
        thread = source.thread("t")
        for n in range(6):
            thread.save({"n": n, "text": "x" * 500})
        source.copy_to(target)
        thread.save({"n": 6})
        engine = source._core.context.engine
        steps = engine.steps

        async def damaged(*args: Any, **options: Any) -> Any:
            return [one for one in await steps(*args, **options) if one.step != 3]

        monkeypatch.setattr(engine, "steps", damaged)
        source.copy_to(target)
        assert [target.thread("t").load(n)["n"] for n in range(1, 8)] == list(range(7))
        assert target.verify().ok


def test_a_copy_that_is_refused_takes_nothing_from_the_other_store() -> None:
    with backtrail.open("memory:") as source, backtrail.open("memory:") as target:
        for n in range(5):
            source.thread("t").save({"n": n})
        source.copy_to(target)
        source.prune(backtrail.Retention(keep_last=1))
        for n in range(5):
            target.thread("t").save({"own": n})
        before = everything(target)
        with pytest.raises(backtrail.Conflict):
            source.copy_to(target)
        assert everything(target) == before
        assert target.verify().ok


def test_a_memory_store_is_made_durable_by_a_copy(tmp_path: Path) -> None:
    with backtrail.open("memory:") as store:
        store.thread("t").save({"a": 1})
        store.copy_to(tmp_path / "kept.db")
    with backtrail.open(tmp_path / "kept.db") as store:
        assert store.thread("t").load() == {"a": 1}


def test_a_copy_into_a_store_that_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    with backtrail.open("memory:") as store:
        store.thread("t").save({"a": 1})
        with pytest.raises(InvalidInput):
            store.copy_to(tmp_path / "b.db", key=b"short")
        assert not (tmp_path / "b.db").exists()
