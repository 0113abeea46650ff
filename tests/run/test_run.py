"""Runs, on each engine, through the sync and the async facade."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.base import Lease, Taken
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.run import lease as run_module
from backtrail.run import lease_owner
from fix_children import Child
from fix_children import run as in_child


class Boom(Exception):
    """The error that ends an agent loop."""


def fail_after(store: Any, id: str, iterations: int) -> None:
    """A run that makes some iterations and then dies."""
    with suppress(Boom), store.run(id, task="nightly") as run:
        run.system_prompt = "be brief"
        for number in range(iterations):
            run.messages.append({"role": "user", "content": f"step {number}"})
            run.checkpoint(
                input_tokens=10 * (number + 1), output_tokens=number, custom={"model": "m-1", "errors": number}
            )
        raise Boom


def test_a_run_that_failed_is_resumed_with_all_it_had(opener: Any) -> None:
    fail_after(opener(), "r", 3)
    with opener().run("r") as run:
        assert (run.task, run.iteration, run.system_prompt) == ("nightly", 3, "be brief")
        assert [m["content"] for m in run.messages] == ["step 0", "step 1", "step 2"]
        assert (run.input_tokens, run.output_tokens) == (30, 2)
        assert run.custom == {"model": "m-1", "errors": 2}
        assert run.checkpoint().step == 5  # that it failed is a checkpoint too
        assert run.iteration == 4


def test_a_run_that_succeeded_is_kept_and_listed_as_finished(store: Any) -> None:
    with store.run("r") as run:
        run.checkpoint(messages=[{"role": "user", "content": "x"}], input_tokens=7)
        run.messages.append({"role": "assistant", "content": "y"})
        run.result = {"sum": 3}
    assert store.run("r").exists()
    assert store.runs() == []
    [info] = store.runs(status="finished")
    assert (info.id, info.status, info.input_tokens, info.kind) == ("r", "finished", 7, "run")
    ended = store.run("r").outcome()
    assert (ended.status, ended.result, ended.error) == ("finished", {"sum": 3}, None)
    assert ended.created_at <= ended.ended_at
    assert [message["content"] for message in store.run("r").load()["messages"]] == ["x", "y"]
    with pytest.raises(backtrail.RunFinished) as refused, store.run("r"):
        raise Boom
    assert refused.value.result == {"sum": 3}


def test_a_run_can_be_deleted_at_its_end(store: Any) -> None:
    with store.run("r") as run:
        run.checkpoint()
        run.finish(delete=True)
    assert store.threads() == []
    with store.run("r") as run:
        assert run.iteration == 0


def test_a_keyword_that_a_checkpoint_does_not_know_is_refused(store: Any) -> None:
    with pytest.raises(TypeError, match="model"):
        store.run("r").checkpoint(model="m")
    assert not store.run("r").exists()


def test_a_run_without_a_checkpoint_leaves_no_trace(store: Any) -> None:
    with store.run("r") as run:
        assert (run.iteration, run.messages, run.custom, run.task) == (0, [], {}, "")
    with pytest.raises(Boom), store.run("r"):
        raise Boom
    assert store.threads() == []


def test_a_run_works_without_a_with_block(store: Any) -> None:
    run = store.run("r", task="t")
    assert not run.exists()
    with pytest.raises(backtrail.ThreadNotFound):
        run.resume()
    run.checkpoint(messages=[{"role": "user", "content": "x"}], system_prompt="s", input_tokens=1, output_tokens=2)
    again = store.run("r")
    assert again.resume().step == 1
    assert (again.task, again.iteration, again.input_tokens, again.output_tokens) == ("t", 1, 1, 2)
    again.checkpoint()
    with pytest.raises(backtrail.Conflict):
        run.checkpoint()
    again.finish("done")
    again.finish()
    assert again.outcome().result == "done"
    run.finish(delete=True)
    run.finish(delete=True)
    assert not again.exists()


def test_a_checkpoint_from_a_fresh_handle_goes_on_where_the_run_is(store: Any) -> None:
    store.run("r", task="t").checkpoint(messages=[{"n": 1}], custom={"model": "m"})
    store.run("r").checkpoint(messages=[{"n": 1}, {"n": 2}])
    run = store.run("r")
    run.resume()
    assert (run.task, run.iteration, run.custom) == ("t", 2, {"model": "m"})
    assert run.messages == [{"n": 1}, {"n": 2}]


def test_a_checkpoint_writes_only_new_messages(store: Any) -> None:
    run = store.run("r")
    messages = [{"role": "user", "content": f"{number} " + "x" * 500} for number in range(100)]
    run.checkpoint(messages=messages)
    saved = run.checkpoint(messages=[*messages, {"role": "user", "content": "y" * 500}])
    assert saved.written < 1000


def test_the_iteration_of_a_checkpoint_can_be_given(store: Any) -> None:
    run = store.run("r")
    run.checkpoint(iteration=7)
    assert run.iteration == 7
    run.checkpoint()
    assert run.iteration == 8


@pytest.mark.parametrize(
    "bad",
    [
        {"iteration": -1},
        {"input_tokens": "3"},
        {"output_tokens": True},
        {"messages": "text"},
        {"custom": {"x": object()}},
    ],
)
def test_bad_values_are_refused_and_nothing_is_saved(store: Any, bad: dict[str, Any]) -> None:
    run = store.run("r")
    with pytest.raises(backtrail.InvalidInput):
        run.checkpoint(**bad)
    assert not run.exists()
    assert (run.iteration, run.custom) == (0, {})


def test_a_session_is_not_mistaken_for_a_run(store: Any) -> None:
    store.session("s").add("user", "x")
    with pytest.raises(backtrail.InvalidInput, match="session"):
        store.run("s").resume()
    with pytest.raises(backtrail.InvalidInput, match="session"), store.run("s"):
        raise Boom
    assert store.session("s").count() == 1


def test_runs_are_listed_newest_first_without_their_messages(store: Any) -> None:
    for name in ("a", "b", "c"):
        fail_after(store, name, 2)
    store.run("a").checkpoint(input_tokens=99)
    store.session("s").add("user", "x")
    found = [(info.id, info.task, info.iteration, info.input_tokens, info.output_tokens) for info in store.runs()]
    assert found == [("a", "nightly", 3, 99, 1), ("c", "nightly", 2, 20, 1), ("b", "nightly", 2, 20, 1)]
    assert [info.id for info in store.runs(limit=1, after="a")] == ["c"]
    run = store.run("c")
    run.thread.rewind(1)
    assert {info.id: info.iteration for info in store.runs()}["c"] == 1


@pytest.mark.parametrize("part", ["payload", "root"])
def test_a_damaged_checkpoint_is_an_error_and_never_a_new_run(opener: Any, part: str) -> None:
    first = opener()
    with suppress(Boom), first.run("r") as run:
        run.checkpoint(messages=[{"role": "user", "content": "x" * 500}])
        raise Boom
    store = opener()
    engine = store._core.context.engine
    payloads, tip = engine.payloads, engine.tip

    async def damaged_payloads(*args: Any) -> Any:
        return [(step, data[:-1] + bytes([data[-1] ^ 1])) for step, data in await payloads(*args)]

    async def damaged_tip(*args: Any) -> Any:
        head, row = await tip(*args)
        return head, row._replace(root=row.root[:-1] + bytes([row.root[-1] ^ 1]))

    if part == "payload":
        engine.payloads = damaged_payloads
    else:
        engine.tip = damaged_tip
    try:
        with pytest.raises(backtrail.Corrupt), store.run("r"):
            raise Boom
        with pytest.raises(backtrail.Corrupt):
            store.run("r").resume()
        with pytest.raises(backtrail.Corrupt):
            store.run("r").checkpoint(messages=[{"role": "user", "content": "a fresh start"}])
    finally:
        engine.payloads, engine.tip = payloads, tip
    again = opener().run("r")
    again.resume()
    assert again.messages == [{"role": "user", "content": "x" * 500}]


# -- the lease -------------------------------------------------------------------------------------------------------


def test_a_second_process_is_told_the_owner_of_the_run(opener: Any) -> None:
    store, other = opener(), opener()
    with store.run("r") as run:
        run.checkpoint()
        with pytest.raises(backtrail.LockTimeout, match=f"pid {os.getpid()}") as refused, other.run("r"):
            raise Boom
        assert refused.value.owner is not None
        with pytest.raises(backtrail.LockTimeout):
            other.run("r").resume()
        run.checkpoint()
        assert run.resume().step == 2
        run.checkpoint()
    with pytest.raises(backtrail.RunFinished), other.run("r"):
        raise Boom


def test_the_lease_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    def work(send: Callable[[bytes], None]) -> None:
        with backtrail.open(url).run("r") as run:
            run.checkpoint(messages=[{"role": "user", "content": "kept"}], input_tokens=5)
            send(b"!")
            signal.pause()

    child = Child(work)
    assert child.read(1) == b"!"
    with backtrail.open(url) as store:
        with pytest.raises(backtrail.LockTimeout, match=f"pid {child.pid}"), store.run("r"):
            raise Boom
        child.kill()
        with store.run("r") as run:
            assert (run.iteration, run.input_tokens) == (1, 5)
            assert run.messages == [{"role": "user", "content": "kept"}]


def test_a_process_that_waits_gets_the_run_once_it_is_released(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    def work(send: Callable[[bytes], None]) -> None:
        with backtrail.open(url).run("r") as run:
            run.checkpoint()
            send(b"!")
            signal.sigtimedwait([], 0.3)
            raise KeyboardInterrupt

    child = Child(work)
    assert child.read(1) == b"!"
    with backtrail.open(url) as store, store.run("r", timeout=30) as run:
        assert run.iteration == 1
    child.end()


def test_of_two_processes_that_resume_one_run_one_gets_it(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    with backtrail.open(url) as store:
        store.run("r").checkpoint()

    def work(send: Callable[[bytes], None]) -> None:
        with backtrail.open(url) as store:
            try:
                with store.run("r") as run:
                    send(b"y")
                    signal.pause()
                    run.checkpoint()
            except backtrail.LockTimeout:
                send(b"n")
                signal.pause()

    children = [Child(work) for _ in range(4)]
    answers = b"".join(child.read(1) for child in children)
    for child in children:
        child.kill()
    assert sorted(answers) == sorted(b"ynnn")


def test_a_process_that_lost_the_lease_cannot_write_or_finish(opener: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "TTL", 0.2)
    slow, other = opener(), opener()
    run = slow.run("r")
    inner = getattr(run, "inner", run)
    with suppress(Boom), run:
        run.checkpoint(messages=[{"n": 1}])
        inner._heart.cancel()  # its lease is no longer renewed, as when a laptop sleeps
        monkeypatch.setattr(run_module, "TTL", 60.0)  # the next owner keeps the lease, however slow this machine is
        with suppress(Boom), other.run("r", timeout=60) as taken:
            with pytest.raises(backtrail.LockLost, match="taken over"):
                run.checkpoint(messages=[{"n": 3}])
            taken.checkpoint(messages=[{"n": 2}])
            with pytest.raises(backtrail.Conflict):
                run.checkpoint(messages=[{"n": 3}])
            raise Boom
        with pytest.raises(backtrail.Conflict):
            run.finish()
        raise Boom
    assert other.run("r").exists()


CALLS = {
    "checkpoint": lambda run: run.checkpoint(),
    "finish": lambda run: run.finish(),
    "resume": lambda run: run.resume(),
    "rewind": lambda run: run.rewind(-1),
    "undo": lambda run: run.undo(),
    "save": lambda run: run.thread.save({"n": 1}),
}


def sleeps_through(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease is no longer renewed, as when a laptop sleeps; then the next owner has it."""
    inner = getattr(run, "inner", run)
    inner._heart.cancel()
    monkeypatch.setattr(run_module, "TTL", 60.0)  # the next owner keeps the lease, however slow this machine is


def renewed(store: Any, run: Any) -> bool:
    """What a process that wakes up does in the background."""
    inner = getattr(run, "inner", run)
    renewal = inner._core.renew()
    return store.loop.run_until_complete(inner._runner(renewal)) if hasattr(store, "loop") else finish(renewal)


@pytest.mark.parametrize("wakes", [False, True], ids=["at once", "renews first"])
def test_a_holder_that_slept_while_another_did_the_whole_run_is_told(
    wakes: bool, opener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = opener(), opener()
    for name, call in CALLS.items():
        monkeypatch.setattr(run_module, "TTL", 0.05)
        run = slow.run(name)
        with suppress(Boom), run:  # it has saved nothing yet
            sleeps_through(run, monkeypatch)
            with other.run(name, timeout=60) as taken:
                taken.checkpoint(messages=[{"n": 1}])
            assert other.run(name).outcome().status == "finished"
            if wakes:
                assert renewed(slow, run) is False
            for _ in range(2):  # also the second time
                with pytest.raises(backtrail.LockLost):
                    call(run)
            raise Boom
        assert other.run(name).outcome().status == "finished"
        with suppress(backtrail.RunFinished), other.run(name):  # and its lease is free
            pass  # the lease is free


@pytest.mark.parametrize("wakes", [False, True], ids=["at once", "renews first"])
def test_a_block_that_ends_after_the_lease_was_lost_does_not_end_well(
    wakes: bool, opener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "TTL", 0.05)
    slow, other = opener(), opener()
    run = slow.run("r")

    def work() -> None:
        with run:
            sleeps_through(run, monkeypatch)
            with other.run("r", timeout=60):
                pass
            if wakes:
                renewed(slow, run)

    with pytest.raises(backtrail.LockLost, match="taken over"):
        work()


def test_a_holder_that_slept_is_told_though_the_head_is_where_it_left_it(
    opener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "TTL", 0.05)
    slow, other = opener(), opener()
    run = slow.run("r")
    with suppress(Boom), run:
        kept = run.checkpoint(messages=[{"n": 1}])
        sleeps_through(run, monkeypatch)
        with suppress(Boom), other.run("r", timeout=60) as taken:
            taken.checkpoint(messages=[{"n": 2}])
            taken.rewind(kept)
            raise Boom
        assert renewed(slow, run) is False
        with pytest.raises(backtrail.LockLost, match="taken over"):
            run.checkpoint(messages=[{"n": 3}])
        raise Boom
    assert other.run("r").thread.load()["messages"] == [{"n": 1}]


def test_the_lease_is_renewed_while_an_iteration_takes_its_time(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "backtrail.run.heartbeat.TTL", 0.03
    )  # renews every 0.01 s; the lease itself lasts as long as ever
    with backtrail.open(tmp_path / "s.db") as store, store.run("r") as run:
        token, ends = run._core.thread.fence.token, finish(_end_of_lease(store))
        while finish(_end_of_lease(store)) <= ends:
            time.sleep(0.001)
        with pytest.raises(backtrail.LockTimeout), store.run("r"):
            raise Boom
        run.checkpoint()
        assert run._core.thread.fence.token == token


def test_the_async_facade_renews_the_lease_as_well(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("backtrail.run.async_api.TTL", 0.03)

    async def main() -> None:
        async with await backtrail.aio.open(tmp_path / "s.db") as store, store.run("r") as run:
            ends = await store._runner(_end_of_lease(store))
            while await store._runner(_end_of_lease(store)) <= ends:
                await asyncio.sleep(0.001)
            with pytest.raises(backtrail.LockTimeout):
                async with store.run("r"):
                    raise Boom
            await run.checkpoint()

    asyncio.run(main())


async def _end_of_lease(store: Any) -> int:
    """The time at which the run's lease expires."""
    taken = await store._core.context.engine.lease("run:r", "somebody", 1.0)
    assert isinstance(taken, Taken)
    return taken.expires


def test_a_renewal_that_is_under_way_when_a_run_ends_does_not_acquire_its_lease_again(monkeypatch: Any) -> None:
    monkeypatch.setattr("backtrail.run.async_api.TTL", 0.03)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryEngine):
        async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
            renews = name in self._leases and not begun.is_set()
            if renews:
                begun.set()
                go_on.wait()
            answer = await super().lease(name, owner, ttl)
            if renews:
                done.set()
            return answer

    async def main() -> None:
        store = await backtrail.aio.open(Slow())
        async with store.run("r"):
            await asyncio.to_thread(begun.wait)
            asyncio.get_running_loop().call_later(0.01, go_on.set)
        go_on.set()
        await asyncio.to_thread(done.wait)
        async with store.run("r") as run:
            await run.checkpoint()

    asyncio.run(main())


def test_a_lease_that_expired_is_renewed_if_nobody_had_it_meanwhile(store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(run_module, "TTL", 0.05)
    with store.run("r") as run:
        run.checkpoint()
        inner = getattr(run, "inner", run)
        before = inner._core.thread.fence
        signal.sigtimedwait([], 0.1)
        renewed = inner._core.renew()
        on_loop = hasattr(store, "loop")
        assert (store.loop.run_until_complete(inner._runner(renewed)) if on_loop else finish(renewed)) is True
        assert inner._core.thread.fence == before
        run.checkpoint()


@pytest.mark.linux
def test_a_lease_owner_tells_whether_its_process_is_gone() -> None:
    mine = lease_owner.new_owner()
    assert f"pid {os.getpid()}" in mine
    assert not lease_owner.is_gone(mine)
    assert mine != lease_owner.new_owner()
    dead = in_child(lambda send: send(lease_owner.new_owner().encode())).decode()
    assert lease_owner.is_gone(dead)
    assert not lease_owner.is_gone(dead.replace(dead.partition(" ")[0], "another-machine", 1))
    assert not lease_owner.is_gone("somebody's own word")


def test_the_owner_on_a_machine_of_the_same_name_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = in_child(lambda send: send(lease_owner.new_owner().encode())).decode()
    monkeypatch.setattr(lease_owner, "_boot", lambda: "0badc0de")  # what this machine is to another one
    assert not lease_owner.is_gone(dead)
