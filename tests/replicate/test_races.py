"""Races between saves, comparisons and switches: nothing is doubled, lost, or mistaken for a divergence."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.base import Commit, Engine
from backtrail.engines.memory import MemoryEngine
from fix_flaky import Flaky
from fix_pairs import Pair

NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


class Held(Flaky):
    """An engine over a network that a test can let a save wait in front of, or make late by chance."""

    def __init__(self, engine: Engine, late: random.Random | None = None) -> None:
        super().__init__(engine, awaiting=True)
        self.free, self.reached = asyncio.Event(), asyncio.Event()
        self.free.set()
        self._late = late

    async def commit(self, commit: Commit) -> None:
        if self._late is not None:
            await asyncio.sleep(self._late.random() / 500)
        if (commit.rows or commit.marks) and not self.free.is_set():
            self.reached.set()
            await self.free.wait()
        await self.engine.commit(commit)


class Two:
    """Two sides, and stores over them as several processes have them."""

    def __init__(self) -> None:
        self.engines = MemoryEngine(), MemoryEngine()
        self.stores: list[backtrail.AsyncStore] = []

    async def open(self, late: random.Random | None = None, **options: Any) -> tuple[backtrail.AsyncStore, Held, Held]:
        """A store, and the active side and the follower as only it sees them."""
        one, two = (Held(engine, late) for engine in self.engines)
        store = await backtrail.aio.open(one, replica=two, **{**NEVER, **options})
        self.stores.append(store)
        return store, one, two

    async def check(self, thread: str, count: int) -> list[Any]:
        """Both sides are equal, and have each save once; the messages."""
        for store in self.stores:
            while (status := await store.catch_up()).behind:
                await asyncio.sleep(0.01)
            assert status.diverged == 0
        one, two = (backtrail.open(engine) for engine in self.engines)
        assert one.threads() == two.threads()
        history = one.thread(thread).history(all=True)
        assert history == two.thread(thread).history(all=True)
        assert len(history) == count
        messages: list[Any] = one.thread(thread).load()["messages"]
        assert len(messages) == len(set(messages)) == count
        return messages


def test_a_save_that_another_process_is_making_is_not_taken_for_a_divergence() -> None:
    async def main() -> None:
        two = Two()
        (writer, _, follower), (other, _, _) = await two.open(), await two.open()
        await writer.thread("t").append("messages", ["one"])
        follower.free.clear()
        saving = asyncio.ensure_future(writer.thread("t").append("messages", ["two"]))
        making = asyncio.ensure_future(writer.thread("new").append("messages", ["one"]))
        await follower.reached.wait()
        for _ in range(3):
            assert (await other.catch_up()).diverged == 0
        follower.free.set()
        await asyncio.gather(saving, making)
        assert await two.check("t", 2) == ["one", "two"]
        assert await two.check("new", 1) == ["one"]

    asyncio.run(main())


@pytest.mark.parametrize("again", [True, False])
def test_a_save_that_the_active_side_refuses_is_on_neither_side(again: bool) -> None:
    async def main() -> None:
        two = Two()
        (writer, active, _), (other, _, _) = await two.open(), await two.open()
        first = await writer.thread("t").append("messages", ["one"])
        active.free.clear()
        expect = {} if again else {"expect": first}
        saving = asyncio.ensure_future(writer.thread("t").append("messages", ["slow"], **expect))
        await active.reached.wait()
        racing = asyncio.ensure_future(other.thread("t").append("messages", ["quick"]))
        while (await asyncio.to_thread(backtrail.open(two.engines[0]).thread("t").load))["messages"] != [
            "one",
            "quick",
        ]:
            await asyncio.sleep(0.001)
        active.free.set()
        await racing
        if again:
            await saving
            assert await two.check("t", 3) == ["one", "quick", "slow"]
        else:
            with pytest.raises(backtrail.Conflict):
                await saving
            assert await two.check("t", 2) == ["one", "quick"]

    asyncio.run(main())


class Ahead(Flaky):
    """A side where somebody else goes on from a save before who made it hears of it."""

    goes_on: Any = None

    async def commit(self, commit: Commit) -> None:
        await Flaky.commit(self, commit)  # type: ignore[misc]  # it is made from a list of names
        if self.goes_on is not None and commit.rows:
            goes_on, self.goes_on = self.goes_on, None
            await goes_on()


def test_a_save_from_which_somebody_went_on_before_its_caller_heard_of_it_is_not_made_twice() -> None:
    """The active side's answer was lost, the follower took over, and another process saves there at once."""

    async def main() -> None:
        sides = MemoryEngine(), MemoryEngine()
        primary, replica = Flaky(sides[0], awaiting=True), Ahead(sides[1], awaiting=True)
        writer = await backtrail.aio.open(primary, replica=replica, **NEVER)
        await writer.thread("t").append("messages", ["one"])
        away = Flaky(sides[0], awaiting=True)
        other = await backtrail.aio.open(away, replica=Flaky(sides[1], awaiting=True), **NEVER)
        assert await other.thread("t").load() == {"messages": ["one"]}
        away.up = False

        async def goes_on() -> None:
            await other.thread("t").append("messages", ["somebody else's"])

        replica.goes_on = goes_on
        primary.lose_answers = 1
        await writer.thread("t").append("messages", ["two"])
        assert await writer.thread("t").load() == {"messages": ["one", "two", "somebody else's"]}
        primary.up = away.up = True
        for store in (writer, other):
            while (status := await store.catch_up()).behind:
                assert status.primary.healthy
        for side in sides:
            alone = backtrail.open(side)
            assert alone.thread("t").load() == {"messages": ["one", "two", "somebody else's"]}
            assert len(alone.thread("t").history(all=True)) == 3
            assert not alone.verify().problems

    asyncio.run(main())


def test_what_is_said_of_a_checkpoint_is_not_said_on_one_side_only() -> None:
    """A label that only the active side has reaches the follower; one that was given up before that is on neither."""

    async def main() -> None:
        two = Two()
        (writer, active, follower), (other, _, _) = await two.open(), await two.open()
        for number in range(3):
            await writer.thread("t").append("messages", [number])
        follower.free.clear()
        labelling = asyncio.ensure_future(writer.thread("t").annotate(1, label="given"))
        await follower.reached.wait()
        assert (await other.catch_up()).behind == 0
        assert [backtrail.open(side).thread("t").get(1).label for side in two.engines] == ["given", "given"]
        follower.free.set()
        await labelling
        await two.check("t", 3)
        active.free.clear()
        given_up = asyncio.ensure_future(writer.thread("t").annotate(2, label="given up"))
        await active.reached.wait()
        given_up.cancel()  # it never gets there
        with pytest.raises(asyncio.CancelledError):
            await given_up
        active.free.set()
        await two.check("t", 3)
        assert [one.label for one in await other.thread("t").history()] == ["given", None, None]

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_processes_that_append_to_one_thread_at_once_make_no_divergence(seed: int) -> None:
    async def main() -> None:
        two, dice = Two(), random.Random(seed)
        stores = [(await two.open(dice, health_every=0.02))[0] for _ in range(3)]

        async def write(number: int) -> None:
            for n in range(15):
                await stores[number].thread("t").append("messages", [f"{number}:{n}"])

        await asyncio.gather(*map(write, range(3)))
        messages = await two.check("t", 45)
        for number in range(3):
            assert [one for one in messages if one.startswith(f"{number}:")] == [f"{number}:{n}" for n in range(15)]

    asyncio.run(main())


def test_a_save_that_was_cancelled_half_way_does_not_keep_the_sides_apart() -> None:
    """The active side has it, and the follower does not yet."""

    async def main() -> None:
        two = Two()
        writer, _, follower = await two.open(health_every=0.05)
        thread = writer.thread("t")
        await thread.append("messages", ["one"])
        follower.free.clear()
        saving = asyncio.ensure_future(thread.append("messages", ["given up"]))
        await follower.reached.wait()
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        follower.free.set()
        for n in range(3):
            await thread.append("messages", [n])
        assert await two.check("t", 5) == ["one", "given up", 0, 1, 2]

    asyncio.run(main())


def test_what_only_the_active_side_has_when_its_process_dies_reaches_the_follower() -> None:
    """The process died between the two: nobody knows whether anybody was told."""

    async def main() -> None:
        two = Two()
        writer, _, follower = await two.open()
        await writer.thread("t").append("messages", ["one"])
        follower.free.clear()
        saving = asyncio.ensure_future(writer.thread("t").append("messages", ["two"]))
        await follower.reached.wait()
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        assert backtrail.open(two.engines[1]).thread("t").load() == {"messages": ["one"]}
        two.stores.clear()
        await two.open()
        assert await two.check("t", 2) == ["one", "two"]

    asyncio.run(main())


@pytest.mark.parametrize("change", ["delete", "prune", "save", "rewind", "annotate"])
def test_whatever_is_done_by_a_process_that_missed_a_change_of_sides_is_done_on_the_right_one(
    pair: Pair, change: str
) -> None:
    one, two = pair.open(**NEVER), pair.open(**NEVER)
    for store in (one, two):
        for n in range(3):
            store.thread("t").save({"n": n}, expect=store.thread("t").head if store.thread("t").exists() else None)
    pair.primary.up = False
    one.thread("other").save({"n": 1})
    pair.primary.up = True
    one.catch_up()
    thread = two.thread("t")
    if change == "delete":
        thread.delete()
    elif change == "prune":
        assert two.prune(backtrail.Retention(keep_last=1)).checkpoints == 5
    elif change == "save":
        thread.save({"n": 10})
    elif change == "rewind":
        thread.rewind(1)
    else:
        thread.annotate(1, label="said")
    assert two.status().active == "replica"
    pair.until(one, lambda status: not status.behind)
    pair.until(two, lambda status: not status.behind)
    assert one.thread("t").exists() == (change != "delete")
    pair.equal()


def test_an_id_that_was_located_on_one_side_and_was_never_on_the_other_is_not_damage() -> None:
    async def main() -> None:
        two = Two()
        (store, primary, _), (other, theirs, _) = await two.open(failback_after=0.001), await two.open()
        primary.up = theirs.up = False
        gone = await other.thread("t").save({"n": 1})
        await other.thread("t").delete()
        await store.thread("t").save({"n": 2})
        for number in range(3):  # the ids of all rows are cached, with the deleted one
            await store.thread("t").append("log", [number], id=str(uuid.UUID(int=number)))
        primary.up = theirs.up = True
        while (await store.catch_up()).active != "primary":
            await asyncio.sleep(0.01)  # then it has the same heads, and no row that they do not need
        with pytest.raises(backtrail.CheckpointNotFound, match="it was deleted"):
            await store.thread("t").load(gone.id)

    asyncio.run(main())
