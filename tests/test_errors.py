"""Errors are typed, name the thing, and say what to do, where a mistake is easily made."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio


@pytest.fixture
def store() -> backtrail.Store:
    return backtrail.open("memory:")


def test_a_value_that_contains_itself_is_told_in_one_readable_line(store: backtrail.Store) -> None:
    knot: dict[str, Any] = {}
    knot["knot"] = knot
    with pytest.raises(backtrail.EncodeError, match="contains itself") as caught:
        store.thread("t").save(knot)
    assert len(str(caught.value)) < 250
    assert len(caught.value.path) > 1000


def test_the_start_of_several_ids_says_which_they_are(store: backtrail.Store) -> None:
    thread: backtrail.Thread[Any] = store.thread("t")
    both = [thread.save({"n": n}).id for n in (1, 2)]
    with pytest.raises(
        backtrail.AmbiguousCheckpoint, match="no single checkpoint '01': give more characters"
    ) as caught:
        thread.load("01")
    assert all(id in str(caught.value) for id in both)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda session: session.add(None, "hi"), "role must be a str, not NoneType"),
        (lambda session: session.add("", "hi"), "role must not be empty"),
        (
            lambda session: session.extend({"role": "user", "content": "hi"}),
            r"extend\(\) takes a list of messages, not dict",
        ),
        (lambda session: session.extend(3), r"extend\(\) takes a list of messages, not int"),
        (lambda session: session.replace("hi"), r"replace\(\) takes a list of messages, not str"),
    ],
)
def test_what_is_no_message_is_not_taken_for_one(
    store: backtrail.Store, call: Callable[[backtrail.Session], object], said: str
) -> None:
    session = store.session("s")
    with pytest.raises(backtrail.InvalidInput, match=said):
        call(session)
    assert not session.exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.sessions(after=3),
        lambda store: store.runs(after={}),
        lambda store: store.sessions(prefix="\udcff"),
        lambda store: store.runs(prefix=3),
        lambda store: store.threads(kind=3),
        lambda store: store.session("s").truncate(before=3),
        lambda store: store.export("t", to=3),
        lambda store: store.thread("t").load(as_=[3]),
    ],
)
def test_an_argument_of_the_wrong_type_is_invalid_input(
    store: backtrail.Store, call: Callable[[backtrail.Store], object]
) -> None:
    store.thread("t").save({"messages": []})
    store.session("s").add("user", "hi")
    with pytest.raises(backtrail.InvalidInput):
        call(store)


def test_a_thread_whose_messages_are_no_list_is_no_session(store: backtrail.Store) -> None:
    store.thread("t").save({"messages": "a text"})
    for read in (store.session("t").messages, store.session("t").count, lambda: store.session("t").messages(last=1)):
        with pytest.raises(backtrail.InvalidInput, match=r"'t' cannot be read as a session.*load\(\)"):
            read()
    assert store.session("t").thread.load() == {"messages": "a text"}


@pytest.mark.parametrize("types", [3, int, backtrail.Retention])
def test_types_that_are_no_list_are_refused(types: Any) -> None:
    with pytest.raises(backtrail.InvalidInput, match="types= takes a list of classes"):
        backtrail.open("memory:", types=types)


def test_options_behind_a_path_do_not_become_a_file_name(tmp_path: Path) -> None:
    for query in ("durability=normal", "key=00", "replica=b.db"):
        with pytest.raises(backtrail.InvalidInput, match="write sqlite:"):
            backtrail.open(tmp_path / f"agents.db?{query}")
    assert not list(tmp_path.iterdir())
    backtrail.open(tmp_path / "what?.db").close()  # a name like any other
    backtrail.open(f"sqlite:{tmp_path}/agents.db?durability=normal").close()
    assert {"what?.db", "agents.db"} <= {path.name for path in tmp_path.iterdir()}


def test_who_holds_a_run_is_said_in_words(store: backtrail.Store) -> None:
    with store.run("r") as run:
        run.checkpoint()
        with pytest.raises(backtrail.LockTimeout) as caught:
            store.run("r").resume()
    assert "started" not in str(caught.value)
    assert " pid " in str(caught.value)
    assert "started" in (caught.value.owner or "")


def test_who_holds_a_lock_is_said_in_words_and_each_holder_is_another(store: backtrail.Store) -> None:
    store.thread("t").save({})
    with store.thread("t").lock(), pytest.raises(backtrail.LockTimeout) as caught, store.thread("t").lock(timeout=0.0):
        raise AssertionError("two have it")
    assert f" pid {os.getpid()}: waited 0 s" in str(caught.value)
    with store.thread("t").lock() as first:
        pass
    with store.thread("t").lock() as second:
        pass
    assert len({caught.value.owner, first._core.owner, second._core.owner}) == 3


def test_a_run_that_is_over_says_so(store: backtrail.Store) -> None:
    with store.run("r") as run:
        run.checkpoint()
    with pytest.raises(backtrail.RunFinished, match=r"run 'r' has finished: begin another"), store.run("r"):
        raise AssertionError("never reached")
    store.run("r").finish(delete=True)
    with pytest.raises(backtrail.ThreadNotFound, match=r"run 'r' has nothing to resume: .*deleted"):
        store.run("r").resume()


def test_a_server_that_is_away_is_unavailable_and_says_how_often_it_was_asked() -> None:
    with pytest.raises(
        backtrail.Unavailable, match=r"asked 2 times in .*: does it run, and is the URL right"
    ) as caught:
        backtrail.open("redis://127.0.0.1:1?retries=1&backoff=0.001")
    assert type(caught.value) is backtrail.Unavailable
    assert caught.value.__cause__ is not None


def test_a_store_is_synced_to_a_place_as_it_is_copied_to_one(store: backtrail.Store, tmp_path: Path) -> None:
    store.thread("t").save({"n": 1})
    assert store.sync_to(tmp_path / "other.db").records > 0
    assert store.sync_to(tmp_path / "other.db").records == 0
    with pytest.raises(backtrail.InvalidInput, match=r"open\(\) takes"):
        store.sync_to(3)


def test_what_gives_a_list_can_be_awaited_or_gone_through(tmp_path: Path) -> None:
    async def main() -> None:
        async with await backtrail.aio.open(tmp_path / "a.db") as store:
            thread: backtrail.aio.AsyncThread[Any] = store.thread("t")
            await thread.append("items", [1], label="one")
            await thread.append("items", [2])
            await store.session("s").add("user", "hi")
            assert [info.id async for info in store.threads()] == [info.id for info in await store.threads()]
            assert [c.step async for c in thread.history(newest_first=True)] == [2, 1]
            assert [c.step async for c in thread.find(label="one")] == [1]
            assert [message["content"] async for message in store.session("s").messages()] == ["hi"]
            assert [info.id async for info in store.sessions()] == ["s"]
            assert [info async for info in store.runs()] == []
            task = asyncio.create_task(thread.history())  # a coroutine like any other
            assert len(await task) == 2
            with pytest.raises(backtrail.InvalidInput):
                [c async for c in thread.history(limit=-1)]
            assert await store.sync_to(tmp_path / "b.db")

    asyncio.run(main())
