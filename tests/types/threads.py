"""Threads: a state has the thread's type, and everyday states need none."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict, assert_type
from uuid import UUID, uuid4

import attrs
import msgspec
import pydantic

import backtrail
from backtrail.typing import At, State


@dataclasses.dataclass
class Plan:
    goal: str


class Struct(msgspec.Struct):
    goal: str


@attrs.define
class Attrs:
    goal: str


class Model(pydantic.BaseModel):
    goal: str


class Named(NamedTuple):
    goal: str


class Conversation(TypedDict):
    messages: list[dict[str, str]]


class Connection: ...


def without_a_type(store: backtrail.Store, conversation: Conversation, counts: dict[str, int]) -> None:
    thread = store.thread("t")
    assert_type(thread, backtrail.Thread[dict[str, Any]])
    assert_type(thread.load(), dict[str, Any])
    assert_type(thread.save({"messages": [], "n": 1}), backtrail.Checkpoint)
    thread.save(conversation)
    thread.save(counts)
    for record in (Plan("x"), Struct("x"), Attrs("x"), Model(goal="x"), Named("x")):  # of classes given to types=
        thread.save(record)
    assert_type(thread.load(as_=Plan), Plan)
    assert_type(thread.load(3, Conversation), Conversation)
    assert_type(thread.pick(["messages"]), dict[str, Any])
    assert_type(thread.tail("messages", 3), list[Any])

    thread.save("text")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    thread.save([1, 2])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    thread.save(Connection())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def with_a_type(store: backtrail.Store) -> None:
    thread = store.thread("t", type=Plan)
    assert_type(thread, backtrail.Thread[Plan])
    assert_type(thread.load(), Plan)
    assert_type(thread.load(at="0190", as_=Struct), Struct)
    assert_type(thread.save(Plan("x"), label="start"), backtrail.Checkpoint)
    assert_type(thread.fork(), backtrail.Thread[Plan])
    assert_type(store.thread("t", Conversation).load()["messages"], list[dict[str, str]])

    thread.save("not a plan")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    thread.save({"goal": "x"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    store.thread("t", Conversation).save({"talk": []})  # type: ignore[typeddict-item]  # pyright: ignore[reportArgumentType]
    store.thread("t", type="Plan")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def facts(thread: backtrail.Thread, before: backtrail.Checkpoint, id: UUID, custom: Mapping[str, object]) -> None:
    thread.save({}, "label", {"a", "b"}, {"by": "ann"}, None, None, uuid4(), "branch")
    thread.save({}, tags=(tag for tag in "ab"), custom=custom, expect=before, id=str(id))
    thread.save({}, expect=None)
    thread.save({}, expect=before.id, on_conflict="raise")
    thread.save({}, parent=id)
    thread.append("messages", [{"role": "user"}], tags=["a"], files=before.files)
    thread.append("messages", ("a", 1))
    thread.update({"plan": "…"}, remove=["draft"], append=("messages", ["a"]))
    thread.annotate(before, label=None, tags=[], custom={"n": 1})
    thread.annotate("@~1", label="x")
    thread.save({}, expect="@", parent=-2)
    assert_type(backtrail.retry(lambda id: thread.append("messages", ["a"], id=id)), backtrail.Checkpoint)

    thread.save({}, label=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    thread.save({}, tags=[1])  # type: ignore[list-item]  # pyright: ignore[reportCallIssue, reportArgumentType]
    thread.save({}, expect=3.5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    thread.save({}, files=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    thread.save({}, on_conflict="shrug")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    thread.save({}, lable="x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    thread.append("messages", "text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    thread.append("messages", {"role": "user"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    thread.update([1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def checkpoints(thread: backtrail.Thread, before: backtrail.Checkpoint, id: UUID) -> None:
    ats: list[At] = [before, before.id, 3, id]
    for at in ats:
        assert_type(thread.get(at), backtrail.Checkpoint)
        assert_type(thread.load(at), dict[str, Any])
        assert_type(thread.rewind(at, files=True), backtrail.Checkpoint)
        assert_type(thread.diff(at, before), backtrail.Diff)
        thread.delete(at)
    assert_type(thread.id, str)
    assert_type(thread.head, backtrail.Checkpoint | None)
    assert_type(thread.step, int)
    assert_type(thread.retention, backtrail.Retention | None)
    assert_type(thread.exists(), bool)
    assert_type(thread.history(limit=3, newest_first=True), list[backtrail.Checkpoint])
    assert_type(thread.find(tag="a", custom={"n": 1}), list[backtrail.Checkpoint])
    assert_type(thread.undo(), backtrail.Checkpoint)
    assert_type(thread.annotate(3, label="x"), backtrail.Checkpoint)
    assert_type(thread.outline(["messages", 3]), backtrail.Outline)
    assert_type(thread.forks(), list[backtrail.Fork])
    assert_type(thread.workspace(), backtrail.Workspace)
    thread.retain("keep_last=3")
    thread.retain(backtrail.Retention(keep_last=3))

    thread.load(at=1.5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    thread.history(limt=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    thread.rewind()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    thread.retain(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    thread.core  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # noqa: B018


def locks_and_autosaves(store: backtrail.Store, thread: backtrail.Thread, states: list[State]) -> None:
    with thread.lock(timeout=5) as lock:
        assert_type(lock, backtrail.Lock)
        lock.renew()
    assert_type(lock.release(), bool)
    with thread.autosave(every=3) as save:
        for state in states:
            assert_type(save(state, label="x", tags=["a"]), backtrail.Checkpoint | None)
        assert_type(save.flush(), backtrail.Checkpoint | None)
        save("text")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
        save({}, lable="x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    plans = store.thread("t", type=Plan).autosave()
    plans(Plan("x"))
    plans({"goal": "x"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
