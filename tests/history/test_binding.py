"""Every record is bound: one that was changed, moved, swapped or copied gives the right data or `Corrupt`.

Each field of each record is replaced by that of every other record of its kind. In an encrypted store no read may give
other data than was saved. In a plain one, reads find damage by checksums; what has a right checksum in a wrong place is
found by `verify`. What neither can find is listed in `docs/encryption.md`, and at the end of this file.
"""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import backtrail
from backtrail.encode.frame import Frames, describe_row
from backtrail.engines.base import Branch, Head
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import AmbiguousCheckpoint, BacktrailError, Corrupt, NotFound
from backtrail.history.records import chain, meta_of, seal_branch

KEY = bytes(range(32))
ROW = ("id", "meta", "digest", "root", "payload")
HEAD = [name for name in Head.__struct_fields__ if name not in ("thread", "lineage")]
SEALED = {"plain": {}, "sealed": {"key": KEY}}
Tamper = Callable[[MemoryEngine], None]
Seen = dict[str, Any]


def build(store: Any) -> None:
    thread = store.thread("t")
    for n in range(6):
        thread.append("messages", [{"n": n, "text": f"{n} " * 60}])
    thread.update({"paper": "a long one " * 900})
    thread.update({"paper": "another long one " * 900})
    fork = thread.fork("f", at=4)
    for n in range(3):
        fork.append("messages", [{"n": f"fork {n}", "text": "f " * 60}])
    thread.rewind(6)
    for n in range(3):
        thread.append("messages", [{"n": f"again {n}", "text": "r " * 60}])
    thread.annotate(2, label="second")
    thread.annotate(4, label="fourth")
    thread.delete(3)
    other = store.thread("u")
    for n in range(5):
        other.append("messages", [{"n": f"other {n}", "text": "u " * 60}])


def see(store: Any) -> Seen:
    """Everything that a user can read, by the call that reads it; an error counts as "not read"."""
    seen: Seen = {}

    def ask(name: str, call: Callable[[], Any]) -> Any:
        try:
            seen[name] = call()
        except Corrupt:
            return None
        except (NotFound, AmbiguousCheckpoint) as error:
            seen[name] = str(error)
            return None
        return seen[name]

    for name in ("t", "f", "u"):
        thread = store.thread(name)
        ask(f"{name} load", thread.load)
        ask(f"{name} tail", lambda thread=thread: thread.tail("messages", 2))
        ask(f"{name} head", lambda thread=thread: thread.head)
        ask(f"{name} history", thread.history)
        for one in ask(f"{name} history of all", lambda thread=thread: thread.history(all=True)) or []:
            ask(f"{name} {one.id}", lambda thread=thread, one=one: thread.load(one.id))
        for step in range(1, 11):
            ask(f"{name} step {step}", lambda thread=thread, step=step: thread.load(step))
    return seen


# -- the engine's records, and how to change them ---------------------------------------------------------------------


def logs(engine: MemoryEngine) -> list[Any]:
    return [log for lineage in engine._lineages.values() for log in lineage.logs.values()]


def rows(engine: MemoryEngine) -> list[Any]:
    return [row for log in logs(engine) for row in log.rows.values()]


def heads(engine: MemoryEngine) -> list[Head]:
    return [head for head in engine._heads.values() if head.kind != "keys"]


def set_branch(id: bytes, **fields: Any) -> Tamper:
    def tamper(engine: MemoryEngine) -> None:
        log = next(log for log in logs(engine) if log.branch.id == id)
        log.branch = msgspec.structs.replace(log.branch, **fields)

    return tamper


def set_row(branch: bytes, step: int, **fields: Any) -> Tamper:
    def tamper(engine: MemoryEngine) -> None:
        log = next(log for log in logs(engine) if log.branch.id == branch)
        log.rows[step] = log.rows[step]._replace(**fields)

    return tamper


def set_mark(branch: bytes, step: int, mark: bytes | None) -> Tamper:
    return lambda engine: next(log for log in logs(engine) if log.branch.id == branch).say(step, mark)


def set_head(thread: str, **fields: Any) -> Tamper:
    def tamper(engine: MemoryEngine) -> None:
        engine._heads[thread] = msgspec.structs.replace(engine._heads[thread], **fields)

    return tamper


def set_blob(pool: str, id: bytes, data: bytes) -> Tamper:
    return lambda engine: engine._lineages[pool].blobs.__setitem__(id, data)


def tampers(engine: MemoryEngine) -> Iterator[tuple[str, Tamper]]:
    """Each field of each record, replaced by that of each other record of its kind."""
    branches = [log.branch for log in logs(engine)]
    positions = [(row.branch, row.step) for row in rows(engine)]
    for one in branches:
        for origin in [None, *positions]:
            if origin != one.origin:
                yield f"branch {one.thread} re-parented to {origin}", set_branch(one.id, origin=origin)
        for other in branches:
            for field in ("lineage", "thread", "owner", "seal"):
                if getattr(one, field) != getattr(other, field):
                    yield f"{field} of branch {one.thread}", set_branch(one.id, **{field: getattr(other, field)})
            if one is not other:
                both = {"origin": other.origin, "seal": other.seal}
                yield f"origin and seal of branch {one.thread}", set_branch(one.id, **both)
    for one in rows(engine):
        for other in rows(engine):
            same_place = abs(one.step - other.step) <= 1 and one is not other
            for field in ROW if same_place else ():
                where = f"{field} of step {one.step} from step {other.step}"
                yield where, set_row(one.branch, one.step, **{field: getattr(other, field)})
            if same_place:
                whole = {part: getattr(other, part) for part in ROW}
                yield f"step {one.step} from step {other.step}", set_row(one.branch, one.step, **whole)
    marks = [mark for log in logs(engine) for mark in log.marks.values()]
    for position in positions:
        for mark in marks:
            yield f"a mark on step {position[1]}", set_mark(*position, mark)
    for head in heads(engine):
        for other in heads(engine):
            for field in HEAD:
                if getattr(other, field) != getattr(head, field):
                    yield f"{field} of head {head.thread}", set_head(head.thread, **{field: getattr(other, field)})
            if other is not head:
                whole = {field: getattr(other, field) for field in HEAD}
                yield f"head {head.thread} from {other.thread}", set_head(head.thread, **whole)
    for pool, lineage in engine._lineages.items():
        for id in lineage.blobs:
            for other in lineage.blobs.values():
                yield f"blob {id.hex()}", set_blob(pool, id, other)


class Stage:
    """A store on an engine that can be put back to how it was."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.engine = MemoryEngine()
        build(self.open())
        self._kept = copy.deepcopy((self.engine._heads, self.engine._lineages))

    def open(self) -> Any:
        return backtrail.open(self.engine, **self.options)

    def reset(self) -> None:
        self.engine._heads, self.engine._lineages = copy.deepcopy(self._kept)


@pytest.mark.parametrize("codec", SEALED)
def test_no_record_can_take_the_place_of_another(codec: str) -> None:
    replace_records(codec, every=11)


@pytest.mark.nightly
@pytest.mark.parametrize("codec", SEALED)
def test_no_record_can_take_the_place_of_any_other(codec: str) -> None:
    replace_records(codec, every=1)


def replace_records(codec: str, every: int) -> None:
    stage = Stage(SEALED[codec])
    right = see(stage.open())
    assert stage.open().verify().ok
    cases = list(tampers(stage.engine))
    assert len(cases) > 300
    for told, tamper in cases[::every]:
        stage.reset()
        before = copy.deepcopy((stage.engine._heads, [log.marks for log in logs(stage.engine)], rows(stage.engine)))
        records = [log.branch for log in logs(stage.engine)]
        tamper(stage.engine)
        after = (stage.engine._heads, [log.marks for log in logs(stage.engine)], rows(stage.engine))
        if before == after and records == [log.branch for log in logs(stage.engine)] and "blob" not in told:
            continue  # the two were alike
        store = stage.open()
        seen = see(store)
        wrong = [call for call, value in seen.items() if value != right.get(call)]
        sound = store.verify().ok
        assert not (wrong and sound), (told, wrong)
        if codec == "sealed":
            assert not wrong, (told, wrong)


# -- what brought this about: branches that were re-parented -----------------------------------------------------------


@pytest.mark.parametrize("codec", SEALED)
def test_a_branch_hung_on_a_later_one_in_a_sqlite_file_is_found(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with backtrail.open(path, **SEALED[codec]) as store:
        build(store)
        right = store.thread("f").load(2)
    db = sqlite3.connect(path)
    later = db.execute("SELECT id FROM branches WHERE thread = 't' ORDER BY n DESC LIMIT 1").fetchone()[0]
    db.execute("UPDATE branches SET origin = ?, origin_step = 9 WHERE thread = 'f'", [later])
    db.commit()
    db.close()
    with backtrail.open(path, **SEALED[codec]) as store:
        assert not store.verify().ok
        with pytest.raises(Corrupt, match="branch"):
            store.thread("f").load(2)
        with pytest.raises(Corrupt, match="branch"):
            store.thread("f").history()
        assert store.thread("t").load(2) == right, "a thread that does not need the branch stays readable"
        assert store.thread("u").history()
        with pytest.raises(Corrupt):
            store.thread("f").rewind(2)
        report = store.verify(repair=True)
        assert not report.ok
        assert store.verify().ok
        assert store.thread("t").load(2) == right


def test_a_branch_whose_checksum_was_made_anew_is_found_by_verify() -> None:
    stage = Stage({})
    right = see(stage.open())
    branches = [log.branch for log in logs(stage.engine)]
    digests = {(row.branch, row.step): row.digest for row in rows(stage.engine)}
    for one in branches:
        for position, digest in digests.items():
            forged = seal_branch(Frames(), msgspec.structs.replace(one, origin=position), digest)
            if position[0] == one.id or forged.origin == one.origin:
                continue
            stage.reset()
            set_branch(one.id, origin=forged.origin, seal=forged.seal)(stage.engine)
            assert not stage.open().verify().ok, (one.thread, position)
        for name in ("t", "f", "u"):
            forged = seal_branch(
                Frames(), msgspec.structs.replace(one, thread=name), digests.get(one.origin, bytes(16))
            )
            if name != one.thread:
                stage.reset()
                set_branch(one.id, thread=name, seal=forged.seal)(stage.engine)
                assert not stage.open().verify().ok, (one.thread, name)
    assert right


def test_a_forged_gap_does_not_hide_a_break_from_verify() -> None:
    """A repair records gaps. Without the key nobody can."""
    stage = Stage({"key": KEY})
    log = next(log for log in logs(stage.engine) if log.branch.thread == "u")
    del log.rows[2]
    log.steps.remove(2)
    stage.engine._lineages["u"].blobs[b"gap:" + log.branch.id + (3).to_bytes(4, "big")] = Frames().wrap(b"", "")
    store = stage.open()
    report = store.verify()
    assert any("gap" in problem.where for problem in report.problems), report
    assert any("missing" in problem.reason for problem in report.problems), report
    store.verify(repair=True)
    assert store.verify().ok
    assert store.thread("u").exists is not None


# -- copies keep the binding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SEALED)
@pytest.mark.parametrize("target", SEALED)
def test_a_copy_is_bound_like_the_original(source: str, target: str, tmp_path: Path) -> None:
    stage = Stage(SEALED[source])
    right = see(stage.open())
    path = tmp_path / "copy.db"
    stage.open().copy_to(path, **SEALED[target])
    with backtrail.open(path, **SEALED[target]) as store:
        assert store.verify().ok
        seen = see(store)
        assert {call: value for call, value in seen.items() if "step" in call or "load" in call} == {
            call: value for call, value in right.items() if "step" in call or "load" in call
        }
        store.thread("f").append("messages", [{"n": "after the copy"}])
        store.thread("t").rewind(5)
        store.thread("t").append("messages", [{"n": "after the copy"}])
        assert store.verify().ok


def test_a_rekeyed_store_starts_branches_that_verify() -> None:
    stage = Stage({"key": KEY})
    store = stage.open()
    store.rekey(bytes(32))
    store.thread("t").rewind(2)
    store.thread("t").append("messages", [{"n": "new"}])
    assert store.verify().ok
    again = backtrail.open(stage.engine, key=bytes(32))
    assert again.thread("t").load(2)
    assert again.verify().ok


# -- what is not found -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", SEALED)
def test_an_older_head_put_back_is_found_by_verify_while_the_rows_after_it_are_there(codec: str) -> None:
    engine = MemoryEngine()
    store = backtrail.open(engine, **SEALED[codec])
    thread = store.thread("t")
    thread.save({"n": 1})
    old = engine._heads["t"]
    thread.save({"n": 2})
    engine._heads["t"] = old
    store = backtrail.open(engine, **SEALED[codec])
    assert store.thread("t").load() == {"n": 1}, "a read cannot tell"
    assert not store.verify().ok


@pytest.mark.parametrize("codec", SEALED)
def test_a_whole_thread_put_back_or_an_older_annotation_is_not_found(codec: str) -> None:
    engine = MemoryEngine()
    store = backtrail.open(engine, **SEALED[codec])
    thread = store.thread("t")
    thread.save({"n": 1})
    thread.annotate(1, label="one")
    kept = copy.deepcopy((engine._heads, engine._lineages))
    thread.annotate(1, label="two")
    log = logs(engine)[-1]
    log.marks[1] = next(one for lineage in kept[1].values() for one in lineage.logs.values()).marks[1]
    store = backtrail.open(engine, **SEALED[codec])
    assert store.thread("t").get(1).label == "one"
    assert store.verify().ok
    store.thread("t").save({"n": 2})
    engine._heads, engine._lineages = kept
    store = backtrail.open(engine, **SEALED[codec])
    assert store.thread("t").load() == {"n": 1}
    assert store.verify().ok


def test_a_branch_record_of_another_thread_is_refused_by_type() -> None:
    """The seal names every field, so no two branches can have one seal."""
    frames = Frames()
    one = seal_branch(frames, Branch(b"1" * 16, "l", "t", b"o" * 16), bytes(16))
    for fields in (
        {"id": b"2" * 16},
        {"lineage": "m"},
        {"thread": "u"},
        {"owner": b"p" * 16},
        {"origin": (b"1" * 16, 1)},
    ):
        other = seal_branch(frames, msgspec.structs.replace(one, **fields), bytes(16))
        assert other.seal != one.seal, fields


def test_reads_of_a_tampered_store_raise_nothing_untyped() -> None:
    stage = Stage({})
    for _, tamper in list(tampers(stage.engine))[::7]:
        stage.reset()
        tamper(stage.engine)
        store = stage.open()
        for call in (store.threads, store.stats, lambda store=store: store.prune(dry_run=True)):
            try:
                call()
            except BacktrailError:
                continue


# -- keys --------------------------------------------------------------------------------------------------------------


def key_number(frame: bytes) -> int:
    """The number of the data key of a sealed frame, its second byte."""
    return frame[1]


def test_what_is_written_after_a_rekey_is_sealed_with_the_new_data_key() -> None:
    stage = Stage({"key": KEY})
    store = stage.open()
    store.rekey(bytes(32))
    for again in (store, backtrail.open(stage.engine, key=bytes(32))):
        thread = again.thread("t")
        thread.rewind(4 if again is store else 2)
        saved = thread.append("messages", [{"n": "new"}])
        thread.annotate(saved, label="new")
        head = stage.engine._heads["t"]
        log = next(log for log in logs(stage.engine) if log.branch.id == head.branch)
        row = log.rows[saved.step]
        sealed = (row.meta, row.root, row.payload, log.marks[saved.step], log.branch.seal, head.note)
        assert set(map(key_number, sealed)) == {1}
    with pytest.raises(backtrail.InvalidInput, match="wrong key"):
        backtrail.open(stage.engine, key=KEY)


def test_verify_finds_a_row_that_was_made_with_a_retired_key_after_one_made_with_the_new() -> None:
    """A thief knows the data keys of before the rekey, and can write to the store."""
    engine = MemoryEngine()
    thief = backtrail.open(engine, key=KEY)._core.context.frames
    thief = copy.copy(thief)
    thief._ciphers = list(thief._ciphers)  # what a rekey adds does not reach them
    store = backtrail.open(engine, key=KEY)
    store.thread("t").append("messages", ["before"])
    store.rekey(bytes(32))
    for text in ("after", "forged"):
        saved = store.thread("t").append("messages", [text])
    assert store.verify().ok
    (log,) = logs(engine)
    row, where = log.rows[saved.step], describe_row(log.branch.id, saved.step)
    meta = thief.wrap(store._core.context.frames.unwrap(row.meta, meta_of(where, row.id)), meta_of(where, row.id))
    digest = chain(log.rows[saved.step - 1].digest, row.id, meta)
    set_row(log.branch.id, saved.step, meta=meta, digest=digest)(engine)
    (problem,) = backtrail.open(engine, key=bytes(32)).verify().problems
    assert "retired" in str(problem)


def test_a_fresh_copy_accepts_nothing_that_the_old_store_sealed() -> None:
    """Whoever knows a data key of the old store can forge records there; in the copy they are damage."""
    stage = Stage({"key": KEY})
    fresh = MemoryEngine()
    stage.open().copy_to(backtrail.open(fresh, key=bytes(32)))
    right = see(backtrail.open(fresh, key=bytes(32)))
    kept = copy.deepcopy((fresh._heads, fresh._lineages))
    for old in logs(stage.engine):
        for step, row in old.rows.items():
            for part in ("meta", "root", "payload"):
                fresh._heads, fresh._lineages = copy.deepcopy(kept)
                set_row(old.branch.id, step, **{part: getattr(row, part)})(fresh)
                store = backtrail.open(fresh, key=bytes(32))
                if step % 3 == 0:
                    assert not [call for call, value in see(store).items() if value != right.get(call)]
                assert not store.verify().ok
        fresh._heads, fresh._lineages = copy.deepcopy(kept)
        set_branch(old.branch.id, seal=old.branch.seal)(fresh)
        assert not backtrail.open(fresh, key=bytes(32)).verify().ok
    for head in heads(stage.engine):
        fresh._heads, fresh._lineages = copy.deepcopy(kept)
        fresh._heads[head.thread] = head
        with pytest.raises(Corrupt):
            backtrail.open(fresh, key=bytes(32)).thread(head.thread).load()
