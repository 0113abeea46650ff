"""`backtrail doctor`: check the environment and the store, and advise what to do."""

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

from backtrail.cli.context import Command, CommandContext, ExitCode, is_sqlite_file, store_path, with_context
from backtrail.engines.server_url import public_url

if TYPE_CHECKING:
    from backtrail import BacktrailError, Store

Verdict = Literal["ok", "hint", "bad"]
EXTRAS = {"redis": "redis", "postgres": "psycopg", "crypto": "cryptography", "ui": "starlette", "files": "pyfastcdc"}


class Finding(NamedTuple):
    """The result of one check."""

    what: str
    verdict: Verdict
    found: str
    advice: str = ""


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail doctor\n  backtrail doctor -s redis://localhost")
@with_context
def command(context: CommandContext) -> None:
    """Check the environment and the store, and print what to do. Exits with 1 if something is wrong."""
    findings = [*_check_environment(), *_check_file(context.target), *_check_store(context)]
    wrong = [finding for finding in findings if finding.verdict == "bad"]
    if context.json:
        context.print_json({"healthy": not wrong, "findings": [finding._asdict() for finding in findings]})
    else:
        from rich.text import Text

        from backtrail.cli.formatting import one_line
        from backtrail.cli.output import console

        signs = {"ok": ("✓", "added"), "hint": ("•", "changed"), "bad": ("✗", "removed")}
        out = console()
        for finding in findings:
            sign, style = signs[finding.verdict]
            text = Text().append(f"{sign} ", style).append(f"{finding.what}: ", "bold").append(one_line(finding.found))
            out.print(text.append(f"\n    → {one_line(finding.advice)}" if finding.advice else "", style))
    if wrong:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _check_environment() -> Iterator[Finding]:
    import sqlite3

    from backtrail import __version__

    yield Finding(
        "backtrail", "ok", f"{__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
    missing = [extra for extra, module in EXTRAS.items() if importlib.util.find_spec(module) is None]
    advice = f'for these: pip install "backtrail[{",".join(missing)}]"' if missing else ""
    here = ", ".join(extra for extra in EXTRAS if extra not in missing) or "none"
    yield Finding("extras", "hint" if missing else "ok", f"{here} installed", advice)


def _check_file(target: str) -> Iterator[Finding]:
    file = store_path(target)
    if file is None or not is_sqlite_file(target):
        return
    path = Path(file).absolute()
    if not path.exists():
        yield Finding(
            "store file",
            "bad",
            f"{public_url(str(path))} is not there",
            "name the store with -s or BACKTRAIL_STORE, or save to it",
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
    for wanted, checked in ((os.R_OK | os.W_OK, path), (os.W_OK, path.parent)):
        if not os.access(checked, wanted):
            yield Finding("access", "bad", f"{checked} cannot be written", "saves will fail: change its owner or mode")
    free = shutil.disk_usage(path.parent).free
    tight = free < max(100 * 2**20, info.st_size)
    advice = "free some space: compaction needs as much again as the store has" if tight else ""
    yield Finding(
        "disk", "hint" if tight else "ok", f"{free / 1e9:.1f} GB free, store {info.st_size / 1e6:.1f} MB", advice
    )


def _check_store(context: CommandContext) -> Iterator[Finding]:
    from backtrail import BacktrailError
    from backtrail.render.error_hints import with_cli_hints

    try:
        with context.store() as store:
            start = time.perf_counter()
            store.ping()
            milliseconds = (time.perf_counter() - start) * 1000
            slow = milliseconds > 50
            advice = "move the store nearer, or look at the network" if slow else ""
            yield Finding("answers", "hint" if slow else "ok", f"in {milliseconds:.1f} ms", advice)
            stats = store.stats(survey=False)
            yield Finding("format", "ok", f"readable; {stats['threads']:,} threads, {stats['rows']:,} steps")
            yield from _check_replica(store)
            newest = store.threads(limit=1, newest_first=True)
            if newest:
                store.thread(newest[0].id).load()
                yield Finding("newest thread", "ok", f"{newest[0].id} loads")
    except BacktrailError as error:
        yield Finding("store", "bad", with_cli_hints(str(error)), _advice(error))


def _advice(error: BacktrailError) -> str:
    """Advice for a store that cannot be used; empty if the message already says what to do."""
    from backtrail import Corrupt, InvalidInput, MissingExtra, Unavailable, UnsupportedFormat

    if isinstance(error, Corrupt):
        return (
            "`backtrail verify` says what is damaged, and `backtrail verify --repair` sets it aside; "
            "or go back to a copy"
        )
    if isinstance(error, Unavailable):
        return "see that it runs, can be reached from here, and lets this user write"
    if isinstance(error, UnsupportedFormat) and "encrypted" not in str(error):
        return "name the right store with -s or BACKTRAIL_STORE"
    return "" if isinstance(error, InvalidInput | MissingExtra | UnsupportedFormat) else "`--debug` shows the traceback"


def _check_replica(store: Store) -> Iterator[Finding]:
    """The two sides of a store with a replica, and how far one is behind."""
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
            yield Finding(side.role, "bad", f"{side.engine} is unreachable: {side.error}", advice)
    behind = status.behind or status.lag_records
    found = f"{status.lag_records:,} commits and {status.behind:,} lineages behind, for {status.lag_seconds:.0f} s"
    advice = "leave a process running that has the store open, or run `backtrail sync`" if behind else ""
    yield Finding("lag", "hint" if behind else "ok", found if behind else "none", advice)
    if status.spool is not None:
        spooled = status.spool.records
        found = f"{spooled:,} saves ({status.spool.bytes:,} bytes) wait for a side" if spooled else "empty"
        advice = "they are delivered by a process that has the store open when a side is back" if spooled else ""
        yield Finding("spool", "hint" if spooled else "ok", found, advice)
