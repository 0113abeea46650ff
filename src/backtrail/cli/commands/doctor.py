"""`backtrail doctor`: is everything as it should be, and if not, what is to be done?"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from backtrail.cli.context import FAILED, Command, CommandContext, is_file, pass_frame, path_of

if TYPE_CHECKING:
    from backtrail import BacktrailError, Store

Verdict = Literal["ok", "hint", "bad"]
_EXTRAS = {"redis": "redis", "postgres": "psycopg", "crypto": "cryptography", "ui": "starlette", "files": "pathspec"}


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    found: str
    advice: str = ""


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail doctor\n  backtrail doctor -s redis://localhost")
@pass_frame
def command(frame: CommandContext) -> None:
    """Check the environment and the store, and say what to do. Leaves with 1 if something is wrong."""
    findings = [*_environment(), *_place(frame.target), *_store(frame)]
    wrong = [finding for finding in findings if finding.verdict == "bad"]
    if frame.json:
        frame.answer({"healthy": not wrong, "findings": [finding._asdict() for finding in findings]})
    else:
        from rich.text import Text

        from backtrail.cli.output import console, line

        signs = {"ok": ("✓", "added"), "hint": ("•", "changed"), "bad": ("✗", "removed")}
        out = console()
        for finding in findings:
            sign, style = signs[finding.verdict]
            text = Text().append(f"{sign} ", style).append(f"{finding.what}: ", "bold").append(line(finding.found))
            out.print(text.append(f"\n    → {line(finding.advice)}" if finding.advice else "", style))
    if wrong:
        raise click.exceptions.Exit(FAILED)


def _environment() -> Iterator[Finding]:
    import sqlite3

    from backtrail import __version__

    yield Finding(
        "backtrail", "ok", f"{__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
    missing = [extra for extra, module in _EXTRAS.items() if importlib.util.find_spec(module) is None]
    advice = f'for these: pip install "backtrail[{",".join(missing)}]"' if missing else ""
    here = ", ".join(extra for extra in _EXTRAS if extra not in missing) or "none"
    yield Finding("extras", "hint" if missing else "ok", f"{here} installed", advice)


def _place(target: str) -> Iterator[Finding]:
    file = path_of(target)
    if file is None or not is_file(target):
        return
    path = Path(file).absolute()
    if not path.exists():
        yield Finding(
            "store file", "bad", f"{path} is not there", "name the store with -s or BACKTRAIL_STORE, or save to it"
        )
        return
    info = path.stat()
    mode = stat.S_IMODE(info.st_mode)
    if sys.platform != "win32" and mode & 0o077:
        yield Finding(
            "permissions", "hint", f"{path} is {mode:03o}: others on this machine may read it", f"chmod 600 {path}"
        )
    else:
        yield Finding("permissions", "ok", f"{mode:03o}")
    for wanted, place in ((os.R_OK | os.W_OK, path), (os.W_OK, path.parent)):
        if not os.access(place, wanted):
            yield Finding("access", "bad", f"{place} cannot be written", "saves will fail: change its owner or mode")
    free = shutil.disk_usage(path.parent).free
    tight = free < max(100 * 2**20, info.st_size)
    advice = "free some space: compaction needs as much again as the store has" if tight else ""
    yield Finding(
        "disk", "hint" if tight else "ok", f"{free / 1e9:.1f} GB free, store {info.st_size / 1e6:.1f} MB", advice
    )


def _store(frame: CommandContext) -> Iterator[Finding]:
    from backtrail import BacktrailError
    from backtrail.render.hints import advised

    try:
        with frame.store() as store:
            start = time.perf_counter()
            store.ping()
            lag = (time.perf_counter() - start) * 1000
            slow = lag > 50
            advice = "move the store nearer, or look at the network" if slow else ""
            yield Finding("answers", "hint" if slow else "ok", f"in {lag:.1f} ms", advice)
            held = store.stats(survey=False)
            yield Finding("format", "ok", f"readable; {held['threads']:,} threads, {held['rows']:,} steps")
            yield from _mirror(store)
            newest = store.threads(limit=1, newest_first=True)
            if newest:
                store.thread(newest[0].id).load()
                yield Finding("newest thread", "ok", f"{newest[0].id} loads")
    except BacktrailError as error:
        yield Finding("store", "bad", advised(str(error)), _advice(error))


def _advice(error: BacktrailError) -> str:
    """What to do about a store that cannot be used; an error that says it itself needs no more."""
    from backtrail import Corrupt, InvalidInput, MissingExtra, Unavailable, UnsupportedFormat

    if isinstance(error, Corrupt):
        return (
            "`backtrail verify` says what is damaged, and `backtrail verify --repair` sets it aside; "
            "or go back to a copy"
        )
    if isinstance(error, Unavailable):
        return "see that it runs, can be reached from here, and lets this user write"
    if isinstance(error, UnsupportedFormat) and "encrypted" not in str(error):
        return "name the right place with -s or BACKTRAIL_STORE"
    return "" if isinstance(error, InvalidInput | MissingExtra | UnsupportedFormat) else "`--debug` tells more"


def _mirror(store: Store) -> Iterator[Finding]:
    """The two sides of a store with a replica, and what one of them lacks."""
    from backtrail import InvalidInput

    try:
        status = store.status()
    except InvalidInput:
        return  # it has no replica
    for side in (status.primary, status.replica):
        if side.healthy:
            yield Finding(side.role, "ok", f"{side.engine}{', active' if side.active else ''}")
        else:
            advice = "the other side serves meanwhile, and what is missing is shipped when this one is back"
            yield Finding(side.role, "bad", f"{side.engine} is away: {side.error}", advice)
    behind = status.behind or status.lag_records
    found = f"{status.lag_records:,} commits and {status.behind:,} lineages behind, for {status.lag_seconds:.0f} s"
    advice = "leave a process running that has the store open, or run `backtrail sync`" if behind else ""
    yield Finding("lag", "hint" if behind else "ok", found if behind else "none", advice)
    if status.spool is not None:
        held = status.spool.records
        found = f"{held:,} saves ({status.spool.bytes:,} bytes) wait for a side" if held else "empty"
        advice = "they are delivered by a process that has the store open when a side is back" if held else ""
        yield Finding("spool", "hint" if held else "ok", found, advice)
