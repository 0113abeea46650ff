"""The cache of the ends of lists returns what the engine would return, shares no object, and is bounded."""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backtrail
from backtrail.encode.payload_format import Section, pack_payload
from backtrail.encode.record_types import Types
from backtrail.encode.row_format import ListNode, Piece, Tail
from backtrail.encode.values import Values
from backtrail.engines.base import Engine
from backtrail.history import caches
from backtrail.history.caches import ListTailCache, TipCache
from fix_children import run as in_child

LONG = "long enough to be kept outside of the root; " * 8
VALUES = Values(Types())


def say(number: int, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": f"{number}: {LONG}", **more}


def payloads_read(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that grows with each call by which the engine is asked for rows."""
    engine: Engine = store.session("s")._core.thread.context.engine
    asked: list[Any] = []
    original = engine.payloads

    async def payloads(*args: Any) -> Any:
        asked.append(args)
        return await original(*args)

    monkeypatch.setattr(engine, "payloads", payloads)
    return asked


def test_a_caller_who_appends_and_reads_the_end_reads_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backtrail.open(tmp_path / "a.db") as store:
        session = store.session("s")
        said = [say(number) for number in range(30)]
        session.extend(said)
        asked = payloads_read(store, monkeypatch)
        assert session.messages(last=10) == said[-10:]
        assert len(asked) == 1
        for number in range(30, 60):
            said.append(say(number, tool={"nested": [number]}) if number % 3 else say(number))
            session.append(said[-1])
            assert session.messages(last=10) == said[-10:]
            assert store.session("s").messages(last=5) == said[-5:]
            assert session.thread.tail("messages", 3) == said[-3:]
        said += [say(60), say(61, tool={"nested": [61]}), say(62)]
        session.extend(said[-3:])
        assert session.messages(last=10) == said[-10:]
        assert len(asked) == 1
        assert session.messages(last=50) == said[-50:]
        assert len(asked) > 1


def test_items_that_another_process_wrote_are_read(opener: Any) -> None:
    mine, theirs = opener().session("s"), opener().session("s")
    said: list[Any] = []
    for number in range(0, 40, 2):
        said += [say(number), say(number + 1)]
        mine.append(said[-2])
        assert mine.messages(last=4) == said[-5:-1][-4:]
        theirs.append(said[-1])
        assert mine.messages(last=4) == theirs.messages(last=4) == said[-4:]
    theirs.pop()
    theirs.append(say(99))
    assert mine.messages(last=2) == [said[-2], say(99)]


def test_of_what_others_added_only_the_new_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with backtrail.open(tmp_path / "a.db") as mine, backtrail.open(tmp_path / "a.db") as theirs:
        session = mine.session("s")
        said = [say(number) for number in range(60)]
        for message in said[:40]:
            session.append(message)
        assert theirs.session("s").messages(last=20) == said[20:40]
        asked = payloads_read(theirs, monkeypatch)
        for number in range(40, 60):
            session.append(said[number])
            assert theirs.session("s").messages(last=20) == said[: number + 1][-20:]
        rows = [last - first + 1 for _, _, first, last in asked]
        assert len(rows) == 20
        assert max(rows) <= 2


def test_changing_what_was_read_does_not_change_the_cache(store: Any) -> None:
    session = store.session("s")
    session.extend([say(1), say(2, blocks=[{"text": "x"}])])
    for number in (3, 4):
        message = say(number, blocks=[{"text": "y"}]) if number == 3 else say(number)
        session.append(message)
        for _ in range(2):
            for found in [message, *session.messages(last=9)]:
                found["content"] = "changed"
                found.get("blocks", [{}])[0]["text"] = "changed"
    said = [say(1), say(2, blocks=[{"text": "x"}]), say(3, blocks=[{"text": "y"}]), say(4)]
    assert session.messages(last=4) == session.messages() == said


def test_after_a_rewind_a_fork_or_a_cut_the_end_is_that_of_the_list(store: Any) -> None:
    session = store.session("s")
    session.extend([say(number) for number in range(10)])
    session.messages(last=5)
    kept = session.snapshot("here")
    session.append(say(10))
    assert session.messages(last=2) == [say(9), say(10)]
    session.thread.rewind(kept)
    assert session.messages(last=2) == [say(8), say(9)]
    session.append(say(11))
    assert session.messages(last=3) == [say(8), say(9), say(11)]
    fork = session.fork("other")
    fork.append(say(12))
    session.append(say(13))
    assert fork.messages(last=3) == [say(9), say(11), say(12)]
    assert session.messages(last=3) == [say(9), say(11), say(13)]
    session.pop()
    session.append(say(14))
    assert session.messages(last=3) == [say(9), say(11), say(14)]
    session.truncate(keep_last=2)
    assert session.messages(last=9) == [say(11), say(14)]
    session.replace([say(1)] * 4)
    assert session.messages(last=3) == [say(1)] * 3


def test_values_that_are_no_plain_json_come_back_as_they_were(store: Any) -> None:
    session = store.session("s")
    session.extend([say(1), say(2)])
    said = [say(3, at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), say(4, pair=(1, 2)), say(5, image=b"\x00"), say(6)]
    for number, message in enumerate(said, 3):
        session.append(message)
        assert session.messages(last=3) == session.messages()[-3:]
        assert len(session.messages(last=number)) == number
    session.extend([*said, say(7)])
    assert session.messages(last=4) == [*said[1:], say(7)]
    assert session.messages(last=20) == [say(1), say(2), *said, *said, say(7)]


def test_threads_that_append_and_read_at_once_see_what_is_there(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "a.db", durability="normal") as store:
        store.session("s").extend([say(number) for number in range(20)])

        def chat(name: int) -> None:
            session = store.session("s")
            for number in range(25):
                message = say(number, by=name)
                session.append(message)
                # The three others may add all of theirs before this one gets to read.
                assert message in session.messages(last=100)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(chat, range(4)))
        session = store.session("s")
        assert session.messages(last=100) == session.messages()[-100:]
        assert session.count() == 120


@dataclasses.dataclass
class Curious:
    """A type that looks into its own session whenever it is put together."""

    n: int
    look: ClassVar[Any] = None

    def __post_init__(self) -> None:
        if self.n and Curious.look is not None:
            look, Curious.look = Curious.look, None
            look()
            Curious.look = look


def test_code_of_the_user_that_runs_while_a_message_is_read_may_use_the_session() -> None:
    with backtrail.open("memory:", types=[Curious]) as store:
        session = store.session("s")
        session.extend([say(1), say(2)])
        session.messages(last=2)
        session.append(say(3, mind=Curious(7)))
        looked: list[int] = []
        Curious.look = lambda: looked.append(len(session.messages(last=2)))
        try:
            assert [message.get("mind") for message in session.messages(last=2)] == [None, Curious(7)]
        finally:
            Curious.look = None
        assert looked


# -- the memory itself -----------------------------------------------------------------------------------------------


def listing(stream: int, start: int, stop: int, *, branch: bytes = b"b") -> ListNode:
    piece = Piece(branch, stream, start, stop, 1, stop, 0, 100)
    return ListNode((piece,), stop - start, 100, Tail(branch, stream, stop, 100))


def row(stream: int, start: int, items: list[Any]) -> bytes:
    return pack_payload([Section(stream, start, len(items), 0, b"".join(map(VALUES.encode, items)))], [])


def test_the_cache_is_bounded_for_each_list_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_TAIL_ITEMS", 8)
    monkeypatch.setattr(caches, "MAX_TAIL_BYTES", 4000)
    monkeypatch.setattr(caches, "MAX_ALL_TAIL_BYTES", 9000)
    monkeypatch.setattr(caches, "MAX_TAILS", 5)
    memory = ListTailCache()
    small, large = {"content": "x"}, {"content": "x" * 1500}
    memory.add_read(listing(0, 0, 2), 0, [small, small])
    for number in range(2, 20):
        memory.add_written(listing(0, 0, number + 1), row(0, number, [small]), VALUES)
    assert memory.items(listing(0, 0, 20), 12, 20, VALUES) == [small] * 8
    assert memory.items(listing(0, 0, 20), 11, 20, VALUES) is None
    for number in range(20, 24):
        memory.add_written(listing(0, 0, number + 1), row(0, number, [large]), VALUES)
    assert memory.items(listing(0, 0, 24), 22, 24, VALUES) == [large] * 2
    assert memory.items(listing(0, 0, 24), 21, 24, VALUES) is None
    memory.add_written(listing(0, 0, 25), row(0, 24, [{"content": "x" * 5000}]), VALUES)
    assert memory.items(listing(0, 0, 25), 24, 25, VALUES) is None
    memory.add_written(listing(0, 0, 26), row(0, 25, [small]), VALUES)
    assert memory.items(listing(0, 0, 26), 25, 26, VALUES) == [small]
    for stream in range(1, 40):
        memory.add_read(listing(stream, 0, 2), 0, [large] * 2)
        assert memory.size <= 9000
        assert len(memory) <= 5
    assert memory.items(listing(0, 0, 26), 25, 26, VALUES) is None
    assert memory.items(listing(39, 0, 2), 0, 2, VALUES) == [large] * 2
    memory.add_read(listing(40, 0, 9), 0, [small] * 9)  # more than may be remembered: not even begun
    assert memory.items(listing(40, 0, 9), 8, 9, VALUES) is None


@pytest.mark.slow
@pytest.mark.parametrize("memory", [ListTailCache(), TipCache()], ids=["tails", "tips"])
def test_a_child_finds_no_lock_held_that_nobody_will_release(memory: Any) -> None:
    busy = threading.Event()

    def use() -> None:
        while not busy.is_set():
            memory.take("t") if isinstance(memory, TipCache) else memory.known_up_to(listing(0, 0, 2), 0)

    def free(send: Any) -> None:
        assert memory._lock.acquire(timeout=60)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            in_child(free)
    finally:
        busy.set()
        for thread in threads:
            thread.join()


@given(st.data())
@settings(max_examples=200)
def test_the_cache_gives_the_items_of_the_list_or_none_at_all(data: st.DataObject) -> None:
    item = st.one_of(
        st.builds(lambda text: {"role": "user", "content": text}, st.text(max_size=8)),
        st.builds(lambda number: {"nested": [number, {"deep": number}]}, st.integers(0, 9)),
        st.builds(lambda number: {"tuple": (number,)}, st.integers(0, 9)),
        st.sampled_from(["text", 7, None, [1, 2], {1: 2}]),
    )
    memory, streams = ListTailCache(), dict[int, list[Any]]({0: [], 1: []})
    for _ in range(data.draw(st.integers(1, 25))):
        stream = data.draw(st.sampled_from([0, 1]))
        items = streams[stream]
        if data.draw(st.booleans()) or not items:
            new = data.draw(st.lists(item, min_size=1, max_size=3))
            known = data.draw(st.booleans()) or not items  # a writer elsewhere tells us nothing
            if known:
                memory.add_written(listing(stream, 0, len(items) + len(new)), row(stream, len(items), new), VALUES)
            items += new
        start = data.draw(st.integers(0, len(items)))
        whole = listing(stream, 0, len(items))
        found = memory.items(whole, start, len(items), VALUES)
        assert found is None or VALUES.encode(found) == VALUES.encode(items[start:])
        if found is None:
            memory.add_read(whole, start, VALUES.decode(VALUES.encode(items[start:])))
    both = ListNode((*listing(0, 0, len(streams[0])).pieces, *listing(1, 0, len(streams[1])).pieces), 0, 0, whole.tail)
    found = memory.items(both, 0, len(streams[0]) + len(streams[1]), VALUES)
    assert found is None or VALUES.encode(found) == VALUES.encode(streams[0] + streams[1])
