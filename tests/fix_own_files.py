"""Exercises that make backtrail create every kind of file that it has, each below one directory.

An exercise has a part that prepares what belongs to the user (not watched) and one that lets backtrail work. It must
work again when it is repeated in the same directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import backtrail
import backtrail.aio
from backtrail.cli.main import backtrail as commands
from backtrail.errors import BacktrailError

LARGE = "large " * 20_000
MESSAGE = {"role": "user", "content": "Where does the trail begin?"}


class Exercise(NamedTuple):
    """What a user has before, and what backtrail does then."""

    prepare: Callable[[Path], None]
    work: Callable[[Path], None]


def at_home(base: Path) -> None:
    """Let this process have its home directory and its caches below `base`."""
    home = base / "home"
    for name in [name for name in os.environ if name.startswith(("XDG_", "BACKTRAIL_"))]:
        del os.environ[name]
    os.environ["HOME"] = str(home)
    os.chdir(base)


def _use(url: str, **options: Any) -> None:
    """Everything that a store does: states, blobs, sessions, runs, locks, forks, retention, upkeep."""
    with backtrail.open(url, **options) as store:
        thread = store.thread("t")
        thread.save({"messages": [MESSAGE], "large": LARGE})
        thread.append("messages", [MESSAGE])
        if not store.thread("fork").exists():
            thread.fork("fork")
        with thread.lock():
            thread.append("messages", [MESSAGE])
        store.session("s").append(MESSAGE)
        store.run("r").finish(delete=True)
        with store.run("r", task="look") as run:
            run.checkpoint(iteration=1)
            run.step("look", int, 1)
        store.threads()
        store.prune(backtrail.Retention(keep_last=1))
        store.compact()
        assert store.verify().ok
        assert thread.load()["large"] == LARGE
    with backtrail.open(url, **options) as store:
        assert store.thread("t").load()["large"] == LARGE


def _use_async(url: str) -> None:
    async def work() -> None:
        async with await backtrail.aio.open(url) as store:
            await store.thread("t").save({"large": LARGE})
            await store.session("s").append(MESSAGE)
            await store.run("r").finish(delete=True)
            async with store.run("r", task="look") as run:
                await run.checkpoint(iteration=1)
            await store.compact()

    asyncio.run(work())


def _salvage(base: Path) -> None:
    """A damaged line is set aside."""
    url = f"jsonl:{base / 'store'}"
    with backtrail.open(url) as store:
        for n in range(3):
            store.thread("t").save({"n": n})
    log = base / "store" / "t.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:-2], lines[-2].replace(b'"', b"'", 1), lines[-1]]))
    with backtrail.open(url, salvage=True) as store:
        assert store.thread("t").load() == {"n": 2}
        store.compact()


def _project(base: Path) -> None:
    (base / "project").mkdir()
    (base / "project" / "a.txt").write_text("one")


def _workspace(base: Path) -> None:
    with backtrail.open(str(base / "store.db")) as store:
        workspace = store.workspace(base / "project")
        (base / "project" / "a.txt").write_text("one")
        first = workspace.snapshot()
        (base / "project" / "a.txt").write_text("two")
        workspace.restore(first)
        assert (base / "project" / "a.txt").read_text() == "one"


def _talk(base: Path) -> None:
    with backtrail.open(str(base / "store.db")) as store:
        store.session("s").append(MESSAGE)


def _export(base: Path) -> None:
    with backtrail.open(str(base / "store.db")) as store:
        for name in ("s.md", "s.jsonl"):
            store.export("s", to=base / name)
            assert "Where" in (base / name).read_text()


def _mirror(base: Path) -> None:
    with backtrail.open(str(base / "store.db"), replica=f"jsonl:{base / 'store'}", spool=base / "spool") as store:
        store.thread("t").append("messages", [MESSAGE])
        assert store.status().spool is not None


def _command_line(base: Path) -> None:
    store = str(base / "store.db")
    for line in (
        ["-s", store, "export", "s", "-o", str(base / "s.jsonl")],
        ["-s", store, "export", "s", "--format", "json", "-o", str(base / "s.json")],
        ["-s", store, "copy", str(base / "copied" / "store.db")],
        ["-s", store, "copy", f"jsonl:{base / 'copied' / 'store'}"],
        ["sync", store, str(base / "synced" / "store.db")],
        ["-s", str(base / "imported" / "store.db"), "import", str(base / "talk.jsonl")],
        ["-s", str(base / "measured" / "store.db"), "bench", "--turns", "10"],
        ["-s", store, "doctor"],
        ["-s", store, "files", "snapshot", "-C", str(base / "project")],
        ["-s", store, "compact"],
        ["-s", store, "verify"],
    ):
        try:
            commands.main(line, prog_name="backtrail")
        except SystemExit as end:
            if end.code:
                raise BacktrailError(f"{line} ended with {end.code}") from end


def _for_command_line(base: Path) -> None:
    for name in ("copied", "synced", "imported", "measured"):
        (base / name).mkdir()
    _project(base)
    _talk(base)
    (base / "talk.jsonl").write_text('{"role": "user", "content": "Where?"}\n')


EXERCISES = {
    "sqlite": Exercise(lambda _: None, lambda base: _use(str(base / "store.db"))),
    "sqlite, async": Exercise(lambda _: None, lambda base: _use_async(str(base / "store.db"))),
    "sqlite, sealed": Exercise(lambda _: None, lambda base: _use(str(base / "store.db"), key=bytes(32))),
    "jsonl": Exercise(lambda _: None, lambda base: _use(f"jsonl:{base / 'store'}")),
    "jsonl, async": Exercise(lambda _: None, lambda base: _use_async(f"jsonl:{base / 'store'}")),
    "jsonl, salvage": Exercise(lambda _: None, _salvage),
    "mirror and spool": Exercise(lambda _: None, _mirror),
    "workspace": Exercise(_project, _workspace),
    "export": Exercise(_talk, _export),
    "command line": Exercise(_for_command_line, _command_line),
}
