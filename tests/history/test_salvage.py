"""Damage is local: a salvaged state has everything but the holes, and a `Hole` where each of them is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail import Corrupt, Hole
from backtrail.encode.tagged_json import from_json, to_json
from backtrail.engines.base import Commit, Drop, NewRow
from backtrail.engines.coroutines import finish
from backtrail.errors import EncodeError, InvalidInput
from fix_stores import open_stores

CODECS: dict[str, dict[str, Any]] = {"plain": {}, "zstd": {"compression": "zstd"}, "sealed": {"key": bytes(range(32))}}


@pytest.fixture(params=["memory", "sqlite", "jsonl", "redis", "postgres"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    yield from open_stores(request.param, "blocking", tmp_path, request)


def build(store: Any) -> Any:
    thread = store.thread("t")
    for n in range(20):
        thread.append("messages", [{"role": "user", "content": f"message {n} " * 20}])
    return thread


def spoil(store: Any, thread: str, step: int, part: str | None = "payload") -> None:
    """Damage one part of a row, or remove the row: through the engine, so that every one of them can be damaged."""
    engine = store._core.context.engine
    head = finish(engine.head(thread))
    branch = next(
        b.id for b in finish(engine.branches(head.lineage)) if finish(engine.row(head.lineage, b.id, step)) is not None
    )
    (row,) = finish(engine.rows(head.lineage, branch, step, step))
    heads = [(one.thread, one.key) for one in finish(engine.heads(head.lineage))]
    finish(engine.drop(Drop(head.lineage, heads, rows=[(branch, step)])))
    if part is not None:
        data = bytearray(getattr(row, part))
        data[len(data) // 2] ^= 0xFF
        row = row._replace(**{part: bytes(data)})
        new = NewRow(branch, step, row.id, row.meta, row.digest, row.root, row.payload)
        finish(engine.commit(Commit(head.lineage, rows=[new])))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("part", ["payload", None])
def test_a_damaged_or_missing_row_takes_only_what_it_added(opener: Any, codec: str, part: str | None) -> None:
    store = opener(**CODECS[codec])
    right = build(store).load()["messages"]
    spoil(store, "t", 12, part)
    thread = opener(**CODECS[codec]).thread("t")
    with pytest.raises(Corrupt):
        thread.load()
    with pytest.raises(Corrupt):
        thread.load(13)
    for step in (12, 13, 20) if part else (13, 20):
        found = thread.load(step, salvage=True)["messages"]
        assert [type(message) for message in found].count(Hole) == 1
        assert found[:11] + found[12:] == right[:11] + right[12:step]
        assert "step 12" in found[11].where
    assert thread.load(11, salvage=True) == {"messages": right[:11]}
    assert thread.load(salvage=True) == thread.load(20, salvage=True)
    page = thread.outline(["messages"], at=20, start=10, stop=13, salvage=True)
    assert [(part.name, type(part.value)) for part in page.parts] == [(10, dict), (11, Hole), (12, dict)]
    assert thread.outline(at=20, salvage=True).parts[0].count == 20


@pytest.mark.parametrize("part", ["meta", "root"])
def test_a_damaged_checkpoint_is_marked_in_the_history_and_the_others_stay(opener: Any, part: str) -> None:
    store = opener()
    thread = build(store)
    right = thread.load()
    spoil(store, "t", 12, part)
    thread = opener().thread("t")
    assert thread.load() == right, "later states do not need the root or the metadata of an earlier one"
    history = thread.history(salvage=True)
    assert [one.step for one in history] == list(range(1, 21))
    assert [one.step for one in history if one.damage] == ([12] if part == "meta" else [])
    assert thread.get(13).parent_id == history[11].id
    assert thread.load(13) == {"messages": right["messages"][:13]}
    assert len(thread.history(all=True, salvage=True)) == 20
    assert thread.get(12, salvage=True).step == 12
    if part == "meta":
        assert thread.load(12, salvage=True) == {"messages": right["messages"][:12]}
        for call in (thread.history, lambda: thread.get(12), lambda: thread.rewind(12), lambda: thread.load(12)):
            with pytest.raises(Corrupt):
                call()
    else:
        assert isinstance(thread.load(12, salvage=True), Hole)
        assert isinstance(thread.outline(at=12, salvage=True).value, Hole)


@dataclass
class Plan:
    goal: str
    steps: list[str]


def test_values_pages_blobs_and_records_become_holes_each_for_itself(opener: Any) -> None:
    store = opener(types=[Plan])
    thread = store.thread("t")
    thread.save({"small": 1, "list": ["x" * 100] * 5})
    thread.update({"value": "v" * 300})  # a slot of step 2
    thread.update({"wide": {f"k{n}": f"value {n} " * 20 for n in range(200)}})  # pages of step 3
    thread.update({"plan": Plan("go " * 80, ["a " * 80] * 3)})
    thread.update({"text": "long " * 5000})  # a blob
    engine = store._core.context.engine
    right = thread.load()
    blob = finish(engine.blob_ids("t"))[0][0]
    heads = [(one.thread, one.key) for one in finish(engine.heads("t"))]
    finish(engine.drop(Drop("t", heads, blobs=[blob])))
    for step in (2, 3, 4):
        spoil(store, "t", step)
    found = opener(types=[Plan]).thread("t").load(salvage=True)
    assert (found["small"], found["list"]) == (right["small"], right["list"])
    assert isinstance(found["value"], Hole)
    assert isinstance(found["text"], Hole)
    assert all(isinstance(value, Hole) for value in found["wide"].values())
    assert found["plan"] != right["plan"]
    text = json.dumps(to_json(found))
    assert "$hole" in text
    with pytest.raises(InvalidInput):
        from_json(json.loads(text))
    with pytest.raises(EncodeError, match="Hole"):
        store.thread("u").save(found)


def test_a_hole_prints_as_its_reason() -> None:
    assert str(Hole("step 12 of branch 00", "its checksum does not hold")) == (
        "(damaged: step 12 of branch 00: its checksum does not hold)"
    )


def test_a_made_up_count_of_lost_items_exhausts_nothing() -> None:
    from backtrail.encode.row_format import ListNode, Piece, Tail

    store = backtrail.open("memory:")
    build(store)
    context = store._core.context
    head = finish(context.engine.head("t"))
    assert head is not None
    from backtrail.history.salvage import SalvageReader

    reader = SalvageReader(context, "t")
    piece = Piece(head.branch, 7, 0, 2**40, 1, 2**32 - 1, 0, 0)
    listing = ListNode((piece,), 2**40, 0, Tail(head.branch, 7, 2**40, 0))
    with pytest.raises(Corrupt):
        finish(reader.items(listing, 0, 2**40))
    assert len(finish(SalvageReader(context, "t").items(listing, 5, 10))) == 5


def test_damaged_jsonl_lines_are_holes_too(tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path / 'store'}"
    with backtrail.open(url) as store:
        right = build(store).load()["messages"]
    (file,) = (path for path in (tmp_path / "store").rglob("*.jsonl") if path.stat().st_size > 2000)
    lines = file.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b"message 11 " in line)
    lines[at] = lines[at].replace(b"message 11", b"massage 11", 1)
    file.write_bytes(b"".join(lines))
    with backtrail.open(url) as store:
        thread = store.thread("t")
        with pytest.raises(Corrupt):
            thread.load()
        found = thread.load(salvage=True)["messages"]
        assert [n for n, message in enumerate(found) if isinstance(message, Hole)] == [11]
        assert found[:11] + found[12:] == right[:11] + right[12:]


def test_one_damaged_snapshot_does_not_hide_the_others(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    with backtrail.open(tmp_path / "s.db") as store:
        workspace = store.workspace(root, name="w")
        for n in range(3):
            (root / "a.txt").write_text(f"{n}")
            taken = workspace.snapshot(label=f"number {n}")
        spoil(store, taken.workspace, 2, "meta")
    with backtrail.open(tmp_path / "s.db") as store:
        found = store.workspace(root, name="w").snapshots()
        assert [(one.label, one.reason) for one in found] == [
            ("number 0", "snapshot"),
            (None, "damaged"),
            ("number 2", "snapshot"),
        ]
        assert found[1].damage is not None
