"""`backtrail threads`: the threads of the store, newest first."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, limit_option, pass_frame, rooms


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail threads\n  backtrail threads support- --limit 20\n"
    "  backtrail threads --kind session --json",
)
@click.argument("prefix", default="")
@limit_option(200, "At most so many.")
@click.option("--kind", help="Only this kind: thread, session, run, workspace.")
@click.option("--by-name", is_flag=True, help="By name instead of newest first.")
@pass_frame
def command(frame: CommandContext, prefix: str, limit: int, kind: str | None, by_name: bool) -> None:
    """List threads whose name starts with PREFIX, newest first."""
    with frame.store() as store:
        found = store.threads(prefix, limit=limit + 1, kind=kind, newest_first=not by_name)
        others = [] if found or prefix or kind else rooms(store)
    more, found = len(found) > limit, found[:limit]
    if frame.json:
        from backtrail.render.json_records import thread_json

        frame.answer({"threads": [thread_json(info) for info in found], "more": more})
        return
    from backtrail.cli import thread_table

    columns = {"kind": [info.kind for info in found], "saved": [str(info.count) for info in found]}
    thread_table.show(found, columns, more=more, nothing=thread_table.nothing("thread", prefix, kind, others))
