"""A save whose answer was lost: repeated with the id that the error carries, or by `retry`, it is there once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import backtrail
import backtrail.aio
from fix_proxy import Proxy
from fix_stores import Stepped

MESSAGE = {"role": "user", "content": "only once"}
_NUMBERS = itertools.count()


class Cut:
    """A store through a proxy that loses answers, and the same store past it. The engine does not repeat by itself."""

    def __init__(self, store: Any, direct: Any, proxy: Proxy) -> None:
        self.store, self.direct, self.proxy = store, direct, proxy

    def lose(self, call: Callable[[], object]) -> backtrail.Unavailable:
        """The error of a call that was carried out, but whose answer was lost."""
        self.proxy.cut_next_answers()
        with pytest.raises(backtrail.Unavailable) as caught:
            call()
        assert self.proxy.cuts_left == 0
        return caught.value


@pytest.fixture(params=["redis blocking", "redis async", "postgres blocking", "postgres async"])
def cut(request: pytest.FixtureRequest, proxy_to: Callable[[int], Proxy]) -> Iterator[Cut]:
    kind, api = request.param.split()
    server = request.getfixturevalue(f"{kind}_server")
    proxy = proxy_to(server.port)
    options = {"prefix" if kind == "redis" else "schema": f"repeated_{next(_NUMBERS)}"}
    url = server.url.replace(str(server.port), str(proxy.port))
    loop = asyncio.new_event_loop()
    with backtrail.open(server.url, **options) as direct:
        direct.ping()
        if api == "blocking":
            store: Any = backtrail.open(url, retries=0, **options)
        else:
            store = Stepped(loop.run_until_complete(backtrail.aio.open(url, retries=0, **options)), loop)
        yield Cut(store, direct, proxy)
        store.close()
    loop.close()


def test_an_append_repeated_with_the_id_of_the_error_is_there_once(cut: Cut) -> None:
    thread, session = cut.store.thread("t"), cut.store.session("s")
    expected: list[Any] = []
    for n in range(3):
        for warm in range(2):  # then the head is known, and the next save is one request
            thread.append("items", [warm])
            session.add("user", "hello")
        error = cut.lose(lambda n=n: thread.append("items", [f"once {n}"]))
        expected += [0, 1, f"once {n}"]
        assert error.id is not None
        assert cut.direct.thread("t").load() == {"items": expected}  # it was carried out
        assert thread.append("items", [f"once {n}"], id=error.id).id == error.id
        assert cut.direct.thread("t").load() == {"items": expected}
        session.add("user", "hello")
        error = cut.lose(lambda: session.append(MESSAGE))
        assert session.append(MESSAGE, id=error.id).id == error.id
        assert (cut.direct.session("s").count(), session.user_turns) == (4 * n + 4, 4 * n + 4)
    assert len(cut.direct.thread("t").history()) == len(expected)


def test_a_save_that_was_not_carried_out_is_made_by_the_repetition(cut: Cut) -> None:
    thread = cut.store.thread("t")
    thread.append("items", [0])
    cut.proxy.refusing = True
    cut.proxy.cut()
    with pytest.raises(backtrail.Unavailable) as caught:
        thread.append("items", [1])
    cut.proxy.refusing = False
    assert cut.direct.thread("t").load() == {"items": [0]}
    assert thread.append("items", [1], id=caught.value.id).id == caught.value.id
    assert cut.direct.thread("t").load() == {"items": [0, 1]}


def test_a_whole_state_and_a_runs_iteration_are_repeated_as_they_are(cut: Cut) -> None:
    thread, run = cut.store.thread("t"), cut.store.run("r")
    thread.save({"n": 0})
    thread.save({"n": 1})
    run.checkpoint(messages=["one"])
    cut.lose(lambda: thread.save({"n": 2}))
    assert cut.direct.thread("t").load() == {"n": 2}
    assert thread.save({"n": 2}).step == 4  # no conflict with itself
    cut.lose(lambda: run.checkpoint(messages=["one", "two"]))
    run.checkpoint(messages=["one", "two"])
    found = cut.direct.run("r").load()
    assert (found["iteration"], found["messages"]) == (2, ["one", "two"])
    cut.lose(lambda: thread.save({"n": 3}))
    cut.direct.thread("t").save({"n": "another writer's"})
    with pytest.raises(backtrail.Conflict):
        thread.save({"n": 3})


def test_retry_repeats_until_the_store_answers_and_saves_once(cut: Cut) -> None:
    asynchronous = isinstance(cut.store, Stepped)
    store = cut.store.inner if asynchronous else cut.store
    thread, asked = store.thread("t"), []

    def call(id: str) -> Any:
        asked.append(id)
        cut.proxy.cut_next_answers(1 if len(asked) < 4 else 0)
        return thread.append("items", ["once"], id=id)

    saved = cut.store.loop.run_until_complete(backtrail.aio.retry(call)) if asynchronous else backtrail.retry(call)
    assert len(asked) >= 4
    assert set(asked) == {saved.id}
    assert cut.direct.thread("t").load() == {"items": ["once"]}


def test_retry_gives_up_after_its_time_and_at_once_for_a_closed_store() -> None:
    calls: list[str] = []

    def fail(id: str) -> None:
        calls.append(id)
        raise backtrail.Unavailable("the server is away")

    with pytest.raises(backtrail.Unavailable, match="away"):
        backtrail.retry(fail, timeout=0)
    assert len(calls) == 1
    with pytest.raises(backtrail.Unavailable):
        backtrail.retry(fail, timeout=0.2)
    assert len(calls) > 2
    store = backtrail.open("memory:")
    thread: backtrail.Thread[Any] = store.thread("t")
    store.close()
    with pytest.raises(backtrail.Closed):
        backtrail.retry(lambda id: thread.append("items", [1], id=id))
    for wrong in (-1, "3", float("nan")):
        with pytest.raises(backtrail.InvalidInput, match="timeout"):
            backtrail.retry(fail, timeout=wrong)  # type: ignore[arg-type]
