"""Sessions, runs, workspaces and the store itself: the types of their arguments and results."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, assert_type

import backtrail
from backtrail.importers import Report
from backtrail.typing import Files
from backtrail.typing import Status as RunStatus
from backtrail.workspace import Changes, FileDiff, Status


class Turn(TypedDict):
    role: str
    content: str


def sessions(store: backtrail.Store, turn: Turn, turns: list[Turn], message: Mapping[str, object]) -> None:
    session = store.session("s")
    assert_type(session.add("user", "hello", name="ada"), backtrail.Checkpoint)
    assert_type(session.add("user", "hello", label="x", tags=["a"], custom={"n": 1}), backtrail.Checkpoint)
    assert_type(session.append(turn, label="x", files=store.workspace("project"), id="…"), backtrail.Checkpoint)
    assert_type(session.load("@~1"), dict[str, Any])
    assert_type(session.history(limit=3), list[backtrail.Checkpoint])
    assert_type(session.diff("start"), backtrail.Diff)
    assert_type(session.undo(), backtrail.Checkpoint)
    assert_type(session.redo(), backtrail.Checkpoint)
    assert_type(session.rewind(turn=-1), backtrail.Checkpoint)
    assert_type(session.rewind(at="start"), backtrail.Checkpoint)
    assert_type(session.append(turn), backtrail.Checkpoint)
    assert_type(session.append(message), backtrail.Checkpoint)
    assert_type(session.extend(turns), backtrail.Checkpoint)
    assert_type(session.replace([{"role": "user"}], user_turns=1), backtrail.Checkpoint)
    assert_type(session.set_summary("…"), backtrail.Checkpoint)
    assert_type(session.save(label="x"), backtrail.Checkpoint)
    assert_type(session.snapshot("m-1", files=store.workspace("project")), backtrail.Checkpoint)
    assert_type(session.truncate(keep_last=3), backtrail.Checkpoint | None)
    assert_type(session.clear(), backtrail.Checkpoint | None)
    assert_type(session.compact(lambda messages: str(len(messages))), backtrail.Checkpoint | None)
    assert_type(session.rewind("m-1", files=True), backtrail.Checkpoint)
    assert_type(session.pop(), dict[str, Any] | None)
    assert_type(session.messages(last=3), list[dict[str, Any]])
    assert_type(session.ids(), list[str])
    assert_type(session.summary, str)
    assert_type(session.user_turns, int)
    assert_type(session.repair(fix=True), list[backtrail.Problem])
    assert_type(session.thread, backtrail.Thread[dict[str, Any]])
    assert_type(session.info(), backtrail.SessionInfo)
    assert_type(store.sessions(prefix="a"), list[backtrail.SessionInfo])

    session.rewind(turn="last")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session.append(turn, label=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session.add(None, "hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session.extend("hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session.extend(turn)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session.append("hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session.truncate(before=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    store.session("s", errors="ignore")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def sessions_that_log(store: backtrail.Store) -> None:
    session = store.session("s", errors="log")
    assert_type(session.add("user", "hello"), backtrail.Checkpoint | None)
    assert_type(session.fork().save(), backtrail.Checkpoint | None)
    session.add("user", "hello").id  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]  # noqa: B018
    raises(session)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    logs(store.session("s"))


def raises(session: backtrail.Session) -> str:
    return session.add("user", "hello").id


def logs(session: backtrail.Session[None]) -> bool:
    return session.add("user", "hello") is None


def double(number: int) -> int:
    return 2 * number


def task(run: backtrail.Run, input: Any) -> str:
    return run.step("s", str, input)


def runs(store: backtrail.Store, turns: list[Turn]) -> None:
    with store.run("r", task="nightly", timeout=1) as run:
        assert_type(run, backtrail.Run)
        assert_type(run.id, str)
        assert_type(run.task, str)
        assert_type(run.iteration, int)
        assert_type(run.messages, list[Any])
        assert_type(run.system_prompt, str)
        assert_type(run.input_tokens, int)
        assert_type(run.output_tokens, int)
        assert_type(run.custom, dict[str, Any])
        assert_type(run.thread, backtrail.Thread[dict[str, Any]])
        assert_type(run.checkpoint(turns, input_tokens=3, custom={"model": "small"}), backtrail.Checkpoint)
        assert_type(run.checkpoint(label="x", tags=["a"]), backtrail.Checkpoint)
        assert_type(run.undo(), backtrail.Checkpoint)
        assert_type(run.rewind("@~1"), backtrail.Checkpoint)
        assert_type(run.load(), dict[str, Any])
        assert_type(run.history(), list[backtrail.Checkpoint])
        assert_type(run.step("s", len, "x"), int)
        assert_type(run.step("s", len, "x", key="k", retry=backtrail.Retry(3)), int)
        assert_type(run.step(double)(3), int)
        assert_type(run.step("d", key=double)(double)(3), int)
        assert_type(run.ask("ok?", "?", schema=bool), Any)
        assert_type(run.status, RunStatus)
        assert_type(run.error, backtrail.Failure | None)
        run.step(double)("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        run.step("s", len, "x", retry=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
        run.checkpoint(model="small")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        run.messages = [{"role": "user"}]
        run.input_tokens += 3
        run.input_tokens = "3"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
        run.iteration = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        run.checkpoint("hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        run.checkpoint(iteration="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(run.exists(), bool)
    assert_type(run.resume(), backtrail.Checkpoint)
    assert_type(store.runs(), list[backtrail.RunInfo])
    assert_type(store.runs(status=["failed", "ready"]), list[backtrail.RunInfo])
    assert_type(run.steps(), list[backtrail.StepInfo])
    assert_type(run.outcome(), backtrail.Outcome)
    assert_type(run.fork(step="plan", input=3), backtrail.Run)
    assert_type(store.pending(), list[backtrail.Pending])
    assert_type(store.submit("t", {"a": 1}), backtrail.Run)
    assert_type(store.work({"t": task}, workers=2), int)
    assert_type(store.replay("r", task), backtrail.Replayed)
    store.runs(status="odd")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def workspaces(store: backtrail.Store, saved: backtrail.Checkpoint) -> None:
    ws = store.workspace(Path("project"), limits=backtrail.Limits(files=3), cache=False, unreadable="flag")
    assert_type(ws, backtrail.Workspace)
    assert_type(ws.snapshot("before", progress=lambda done, total: None), backtrail.Snapshot)
    assert_type(ws.snapshots(), list[backtrail.Snapshot])
    assert_type(ws.restore(ws.snapshot(), dry_run=True), Changes)
    assert_type(ws.restore(saved), Changes)
    assert_type(ws.diff("0190", saved), FileDiff)
    assert_type(ws.revert(ws.snapshot(), saved), Changes)
    assert_type(ws.undo(), Changes)
    assert_type(ws.redo(expect=ws.redo(dry_run=True).plan), Changes)
    assert_type(ws.status(), Status)
    sources: list[Files] = [ws, ws.snapshot(), "0190@project"]
    for files in sources:
        store.thread("t").save({}, files=files)

    ws.restore()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ws.snapshot(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ws.snapshot(progress=print, lable="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    store.workspace("project", unreadable="skip")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    store.workspace("project", limit=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def upkeep(store: backtrail.Store) -> None:
    assert_type(store.threads(prefix="a", limit=3), list[backtrail.ThreadInfo])
    assert_type(store.count(), int)
    assert_type(len(store), int)
    assert_type(store.stats(), dict[str, Any])
    assert_type(store.prune("keep_last=3", timedelta(days=3), dry_run=True, progress=print), backtrail.Pruned)
    assert_type(store.compact(), backtrail.Pruned)
    assert_type(store.verify(repair=True), backtrail.Verified)
    assert_type(store.copy_to("backup.db", durability="normal"), backtrail.Copied)
    assert_type(store.copy_to(backtrail.open("memory:"), progress=print), backtrail.Copied)
    assert_type(store.namespaces(), list[str])
    assert_type(store.rekey(bytes(32)), int)
    assert_type(store.export("s", Path("s.md"), "markdown", at=3), str)
    assert_type(store.import_(["a.json", Path("b.jsonl")], progress=print), Report)
    assert_type(store.sync_to("other.db").records, int)
    assert_type(store.status().lag_records, int)
    with store.janitor(every=timedelta(hours=1), retention="keep_last=3") as janitor:
        assert_type(janitor, backtrail.Janitor)
        assert_type(janitor.status, backtrail.JanitorStatus)

    store.prune(max_age=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    store.prune(progress=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    store.copy_to(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    store.copy_to("backup.db", durabilty="normal")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    store.export("s", format="pdf")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    store.core  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # noqa: B018
