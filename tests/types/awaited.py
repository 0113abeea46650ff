"""The async classes: the same types, to be awaited; lists are awaited or looped over."""

import asyncio
import dataclasses
from typing import Any, TypedDict, assert_type

import backtrail
from backtrail.aio import AsyncJanitor, AsyncLock, AsyncRun, AsyncSession, AsyncStore, AsyncThread
from backtrail.workspace import AsyncWorkspace, Changes


@dataclasses.dataclass
class Plan:
    goal: str


class Conversation(TypedDict):
    messages: list[str]


async def threads(store: AsyncStore, conversation: Conversation) -> None:
    thread = store.thread("t")
    assert_type(thread, AsyncThread[dict[str, Any]])
    assert_type(await thread.load(), dict[str, Any])
    assert_type(await thread.load(as_=Plan), Plan)
    assert_type(await thread.save(conversation, tags=["a"], expect=None), backtrail.Checkpoint)
    assert_type(await thread.append("messages", ["a"]), backtrail.Checkpoint)
    assert_type(await backtrail.aio.retry(lambda id: thread.append("messages", ["a"], id=id)), backtrail.Checkpoint)
    assert_type(await thread.diff("@~2", since_fork=True), backtrail.Diff)
    assert_type(await thread.common_ancestor("start"), backtrail.Checkpoint | None)
    assert_type(await thread.redo(), backtrail.Checkpoint)
    assert_type(await thread.head, backtrail.Checkpoint | None)
    assert_type(await thread.step, int)
    assert_type(await thread.history(), list[backtrail.Checkpoint])
    async for checkpoint in thread.history(newest_first=True):
        assert_type(checkpoint, backtrail.Checkpoint)
    assert_type(await asyncio.create_task(thread.find(tag="a")), list[backtrail.Checkpoint])
    assert_type(await asyncio.gather(thread.exists(), thread.history()), tuple[bool, list[backtrail.Checkpoint]])
    assert_type(await thread.workspace(), AsyncWorkspace)

    plans = store.thread("t", type=Plan)
    assert_type(await plans.load(), Plan)
    assert_type(await plans.save(Plan("x")), backtrail.Checkpoint)
    assert_type(await plans.fork(), AsyncThread[Plan])
    async with plans.lock() as lock:
        assert_type(lock, AsyncLock)
    async with plans.autosave(every=3) as save:
        assert_type(await save(Plan("x"), label="x"), backtrail.Checkpoint | None)
        await save("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    await plans.save("not a plan")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await thread.save("text")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await thread.load(at=1.5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    thread.save({}).id  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # noqa: B018


async def views(store: AsyncStore) -> None:
    session = store.session("s")
    assert_type(session, AsyncSession)
    assert_type(await session.add("user", "hello"), backtrail.Checkpoint)
    assert_type(await store.session("s", errors="log").add("user", "hello"), backtrail.Checkpoint | None)
    assert_type(await session.messages(last=3), list[dict[str, Any]])
    async for message in session.messages():
        assert_type(message, dict[str, Any])
    assert_type(await session.append({"role": "user"}, label="x", id="…"), backtrail.Checkpoint)
    assert_type(await session.load(-1), dict[str, Any])
    assert_type(await session.undo(), backtrail.Checkpoint)
    assert_type(await session.rewind(turn=-1), backtrail.Checkpoint)
    async for saved in session.history():
        assert_type(saved, backtrail.Checkpoint)
    assert_type(await session.summary, str)
    async for listed in store.sessions():
        assert_type(listed, backtrail.SessionInfo)

    async with store.run("r", task="nightly") as run:
        assert_type(run, AsyncRun)
        assert_type(run.iteration, int)
        assert_type(await run.undo(), backtrail.Checkpoint)
        assert_type(await run.load(), dict[str, Any])
        assert_type(await run.checkpoint(["a"], output_tokens=3, custom={"model": "small"}), backtrail.Checkpoint)
    assert_type(await store.runs(), list[backtrail.RunInfo])

    ws = store.workspace("project", cache=False)
    assert_type(ws, AsyncWorkspace)
    before = await ws.snapshot("before")
    assert_type(before, backtrail.Snapshot)
    assert_type(await ws.restore(before), Changes)
    assert_type([each.id async for each in ws.snapshots()], list[str])
    await store.thread("t").save({}, files=ws)

    await session.extend("hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.checkpoint("hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def upkeep(store: AsyncStore) -> None:
    assert_type(await store.threads(prefix="a"), list[backtrail.ThreadInfo])
    assert_type(await store.prune(dry_run=True), backtrail.Pruned)
    assert_type(await store.copy_to("backup.db", durability="normal"), backtrail.Copied)
    async with store.janitor(every=60) as janitor:
        assert_type(janitor, AsyncJanitor)

    await store.copy_to(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
