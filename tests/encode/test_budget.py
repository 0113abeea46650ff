"""Whatever bytes a store holds, a load is stopped by its budget before it has taken the memory or the time."""

from __future__ import annotations

import datetime as dt
import decimal
import tracemalloc
import uuid
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import backtrail
from backtrail.encode.budget import COLLISIONS, Meter, check_budget, collisions, count_containers
from backtrail.encode.frame import Frames
from backtrail.encode.payload_format import Section, pack_payload
from backtrail.encode.record_types import Types
from backtrail.encode.row_format import (
    Blob,
    Inline,
    ListNode,
    Page,
    Piece,
    Root,
    Slot,
    Tail,
    Tree,
    pack_page,
    pack_root,
)
from backtrail.encode.values import Values
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import Corrupt, EncodeError, InvalidInput, OverBudget
from backtrail.model import Budget

MB = 1_000_000
PRIME = 2**61 - 1  # ints that differ by it have the same hash
FRAMES = Frames()


def bomb(size: int, byte: bytes = b"\0") -> bytes:
    """A sound frame of a few KB that unpacks to `size` equal bytes (a multiple of 128 KiB)."""
    blocks = [((1 << 17) << 3 | 1 << 1 | (n == size // (1 << 17) - 1)) for n in range(size // (1 << 17))]
    body = b"".join(block.to_bytes(3, "little") + byte for block in blocks)
    packed = b"\x01" + b"\x28\xb5\x2f\xfd\xc0\x38" + size.to_bytes(8, "little") + body
    return packed + zlib.crc32(packed).to_bytes(4, "little")


class Forgery:
    """A store in memory whose first row says what a test wants."""

    def __init__(self, **options: Any) -> None:
        self.engine = MemoryEngine()
        self.store = backtrail.open(self.engine, **options)
        self.thread = self.store.thread("t")
        for n in range(30):
            self.thread.save({"n": n})
        (self.rows,) = self.engine._lineages["t"].logs.values()
        self.branch = self.rows.branch.id

    def root(self, tree: Tree, step: int = 30) -> None:
        data = FRAMES.wrap(pack_root(Root(tree, 1), self.branch), "")
        self.rows.rows[step] = self.rows.rows[step]._replace(root=data)

    def payload(self, step: int, data: bytes) -> None:
        self.rows.rows[step] = self.rows.rows[step]._replace(payload=data)

    def slots(self, step: int, *slots: bytes) -> None:
        self.payload(step, FRAMES.wrap(pack_payload([], list(slots)), ""))

    def slot(self, step: int, index: int = 0, size: int = 10) -> Slot:
        return Slot(self.branch, step, index, size, bytes(16))

    def pages(self, *places: tuple[int, int]) -> Tree:
        return Tree(None, None, 9, tuple(Page(self.branch, step, index) for step, index in places))


def one_bomb(forged: Forgery) -> None:
    forged.payload(1, bomb(2 * 2**30))
    forged.root(Tree(None, {"a": forged.slot(1)}, 10))


def many_bombs(forged: Forgery) -> None:
    for step in range(1, 26):
        forged.payload(step, bomb(80 * 2**20))
    forged.root(Tree(None, {str(step): forged.slot(step) for step in range(1, 26)}, 10))


def a_blob_that_is_a_bomb(forged: Forgery) -> None:
    forged.engine._lineages["t"].blobs[b"b" * 32] = bomb(3 * 2**30)
    forged.root(Tree(None, {"a": Blob(b"b" * 32, 10, True)}, 10))


def doubling_pages(forged: Forgery) -> None:
    pages = [
        pack_page({"left": forged.pages((1, n + 1)), "right": forged.pages((1, n + 1))}, forged.branch)
        for n in range(40)
    ]
    forged.slots(1, *pages, pack_page({"end": Inline(b"\xc0")}, forged.branch))
    forged.root(forged.pages((1, 0)))


def pages_without_an_end(forged: Forgery) -> None:
    forged.slots(1, pack_page({"again": forged.pages((1, 0))}, forged.branch))
    forged.root(forged.pages((1, 0)))


def many_pieces(forged: Forgery) -> None:
    data = Values(Types()).encode("x" * 100) * 1000
    forged.payload(1, FRAMES.wrap(pack_payload([Section(0, 0, 1000, 0, data)], []), ""))
    pieces = tuple(Piece(forged.branch, 0, n % 900, n % 900 + 1, 1, 1, 0, len(data)) for n in range(20_000))
    forged.root(Tree(None, {"a": ListNode(pieces, 20_000, 10, Tail(forged.branch, 0, 1000, 0))}, 10))


def one_slot_many_times(forged: Forgery) -> None:
    data = Values(Types()).encode("x" * 10 * MB)
    forged.slots(1, data)
    forged.root(Tree(None, {str(n): forged.slot(1, 0, len(data)) for n in range(5000)}, 10))


def one_blob_many_times(forged: Forgery) -> None:
    data = b"x" * 10 * MB
    id = FRAMES.blob_id(data)
    forged.engine._lineages["t"].blobs[id] = FRAMES.wrap(data, "")
    forged.root(Tree(None, {str(n): Blob(id, len(data), True) for n in range(5000)}, 10))


def packed_int(number: int) -> bytes:
    return Values(Types()).encode(number)


def array(items: list[bytes]) -> bytes:
    return b"\xdd" + len(items).to_bytes(4, "big") + b"".join(items)


def extension(code: int, data: bytes) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(code, data))


COLLIDING = [packed_int(PRIME * (n + 20) + 5) for n in range(8000)]


def a_set_that_collides(forged: Forgery) -> None:
    forged.slots(1, extension(2, array(COLLIDING)))
    forged.root(Tree(None, {"a": forged.slot(1)}, 10))


def keys_that_collide(forged: Forgery) -> None:
    forged.slots(1, extension(11, array([part for key in COLLIDING for part in (key, b"\xc0")])))
    forged.root(Tree(None, {"a": forged.slot(1)}, 10))


def keys_that_collide_in_a_plain_map(forged: Forgery) -> None:
    forged.slots(1, b"\xdf" + len(COLLIDING).to_bytes(4, "big") + b"".join(key + b"\xc0" for key in COLLIDING))
    forged.root(Tree(None, {"a": forged.slot(1)}, 10))


def deep_trees_of_long_names(forged: Forgery) -> None:
    tree = Tree(None, {"end": Inline(b"\xc0")}, 1)
    for _ in range(300):
        tree = Tree(None, {"n" * 10_000: tree}, 1)
    forged.root(tree)


HOSTILE: list[Callable[[Forgery], None]] = [
    *(one_bomb, many_bombs, a_blob_that_is_a_bomb, doubling_pages, pages_without_an_end, many_pieces),
    *(one_slot_many_times, one_blob_many_times, a_set_that_collides, keys_that_collide),
    *(keys_that_collide_in_a_plain_map, deep_trees_of_long_names),
]
READS: dict[str, Callable[[Forgery], Any]] = {
    "load": lambda forged: forged.thread.load(),
    "diff": lambda forged: forged.thread.diff(29, 30),
    "outline": lambda forged: [forged.thread.outline(), forged.thread.outline(["a"]), forged.thread.outline(["1"])],
    "verify": lambda forged: forged.store.verify(),
    "prune": lambda forged: forged.store.prune(backtrail.Retention(keep_last=1)),
    "save": lambda forged: forged.thread.save({"a": [1] * 1000, "n": 2}),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.__name__)
def test_a_hostile_store_is_stopped_before_it_takes_memory(hostile: Callable[[Forgery], None], read: str) -> None:
    forged = Forgery()
    hostile(forged)
    forged.store = backtrail.open(forged.engine)
    forged.thread = forged.store.thread("t")
    tracemalloc.start()
    try:
        READS[read](forged)
        refused = ""
    except (OverBudget, Corrupt, backtrail.NotFound) as error:
        refused = str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert refused or read != "load"
    assert len(refused) < 1000
    assert peak < 300 * MB


def test_the_error_names_the_limit_and_the_checkpoint_and_what_to_do() -> None:
    store = backtrail.open("memory:", budget="bytes=100KB")
    thread = store.thread("t")
    thread.save({"small": 1})
    checkpoint = thread.save({"text": "x" * 200_000})
    with pytest.raises(OverBudget) as caught:
        thread.load()
    assert caught.value.limit == "bytes"
    assert caught.value.allowed == 100_000
    assert checkpoint.id in str(caught.value)
    assert "'t'" in str(caught.value)
    assert 'budget="bytes=' in str(caught.value)
    assert thread.load(1) == {"small": 1}
    assert thread.pick(["none"]) == {}


def test_a_larger_budget_loads_what_a_smaller_one_refused(tmp_path: Any) -> None:
    with backtrail.open(tmp_path / "s.db", compression="zstd") as store:
        store.thread("t").save({"text": "x" * 3 * MB, "docs": {str(n): "y" * 5000 for n in range(100)}})
    for budget, fits in [("bytes=1MB", False), ("bytes=10MB", True), (Budget(bytes=4 * MB), True), (None, True)]:
        with backtrail.open(tmp_path / "s.db", budget=budget) as store:
            if fits:
                assert len(store.thread("t").load()["text"]) == 3 * MB
            else:
                with pytest.raises(OverBudget):
                    store.thread("t").load()
    url = f"sqlite:{tmp_path / 's.db'}?budget=bytes=1MB"
    with backtrail.open(url) as store, pytest.raises(OverBudget):
        store.thread("t").load()


@pytest.mark.parametrize(
    ("limit", "state"),
    [
        ("values=1000", {"a": [[n] for n in range(5000)], "b": {"c": "x" * 2000}}),
        ("pieces=5", {str(n): ["x" * 300] for n in range(20)}),
        ("bytes=1000", {"a": "x" * 900, "b": "x" * 900}),
    ],
)
def test_each_limit_is_kept(limit: str, state: Any) -> None:
    engine = MemoryEngine()
    backtrail.open(engine).thread("t").save(state)
    with pytest.raises(OverBudget) as caught:
        backtrail.open(engine, budget=limit).thread("t").load()
    assert limit.startswith(caught.value.limit)
    assert backtrail.open(engine).thread("t").load() == state


def test_a_byte_that_stands_for_a_dict_is_counted_as_one() -> None:
    forged = Forgery()
    data = b"\xdd" + MB.to_bytes(4, "big") + b"\x80" * MB
    forged.slots(1, data)
    forged.root(Tree(None, {"a": forged.slot(1, 0, len(data))}, 10))
    with pytest.raises(OverBudget, match="values"):
        backtrail.open(forged.engine, budget="values=100000").thread("t").load()
    assert len(backtrail.open(forged.engine).thread("t").load()["a"]) == MB


def test_time_is_a_limit() -> None:
    now = [0.0]
    meter = Meter(Budget(seconds=5), lambda: now[0])
    meter.unpack(100)
    now[0] = 6
    with pytest.raises(OverBudget, match="seconds"):
        meter.unpack(100)
    meter.restart("the next state")
    meter.unpack(100)


@pytest.mark.parametrize("kind", ["messages", "chinese", "vectors"])
def test_a_state_of_600_mb_is_within_the_default(kind: str) -> None:
    encode = Values(Types()).encode
    part = {
        "messages": [{"role": "user", "content": "some words in a row " * 20, "n": n} for n in range(2000)],
        "chinese": [{"role": "user", "content": "把大象放进冰箱需要几步" * 30} for n in range(1000)],
        "vectors": [[n * 0.37 + i for i in range(1536)] for n in range(70)],
    }[kind]
    data = encode(part)
    meter = Meter(Budget(), lambda: 0.0)
    meter.expect(600 * MB)
    if kind == "chinese":
        assert count_containers(data, 10**9) == 1001
    meter.decoded = 540 * MB
    while meter.decoded < 600 * MB:
        meter.decode(data)


def test_containers_are_counted_exactly() -> None:
    encode = Values(Types()).encode
    state: Any = {"a": [[], {}, (1, [2]), {3}, b"\x80" * 300, "\x90é" * 300, 2**70, 1.5, -1]}
    state["b"] = {"c": [True] * 70_000}
    assert count_containers(encode(state), 10**6) == 12
    assert count_containers(encode([[]] * 1000), 10) == 11
    for value in (uuid.uuid4(), dt.date(2026, 1, 1), decimal.Decimal(1), frozenset([1]), bytearray(b"x" * 70_000)):
        assert count_containers(encode([value, "x"]), 100) == 2 + isinstance(value, frozenset)


@pytest.mark.parametrize(
    "text", ["bytes", "bytes=", "bytes=5XB", "size=5", "bytes=-1", "bytes=1.5", "seconds=0", "bytes=²"]
)
def test_a_budget_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="budget"):
        backtrail.open("memory:", budget=text)


def test_budgets_are_read_from_text() -> None:
    assert check_budget("bytes=2GiB, values=5, pieces=7,seconds=60") == Budget(
        bytes=2 * 2**30, values=5, pieces=7, seconds=60
    )
    for wrong in (5, True, {"bytes": 1}, b"bytes=1"):
        with pytest.raises(InvalidInput):
            backtrail.open("memory:", budget=wrong)  # type: ignore[arg-type]
    for fields in ({"bytes": "5"}, {"values": 1.5}, {"seconds": float("nan")}, {"pieces": True}):
        with pytest.raises(InvalidInput):
            Budget(**fields)  # type: ignore[arg-type]


def test_what_would_collide_is_refused_when_it_is_saved() -> None:
    numbers = [PRIME * n + 5 for n in range(20, 2000)]
    assert collisions(numbers) > COLLISIONS
    assert collisions(list(range(100_000))) == 0
    for state in ({"a": {*numbers}}, {"a": dict.fromkeys(numbers)}):
        with pytest.raises(EncodeError, match="same hash"):
            backtrail.open("memory:").thread("t").save(state)


def test_many_values_of_special_types_load(store: Any) -> None:
    state = {"a": [{"n": 2**70 + n, "t": (n, n)} for n in range(6000)], "b": {2**80 + n: n for n in range(6000)}}
    store.thread("t").save(state)
    assert store.thread("t").load() == state
