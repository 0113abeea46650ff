"""`backtrail sessions`: conversations, newest first."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, limit_option, pass_frame


@click.command(
    cls=Command, epilog="\b\nExamples:\n  backtrail sessions\n  backtrail sessions telegram: --limit 20 --json"
)
@click.argument("prefix", default="")
@limit_option(200, "At most so many.")
@pass_frame
def command(frame: CommandContext, prefix: str, limit: int) -> None:
    """List sessions whose name starts with PREFIX, newest first, with their messages and user turns."""
    with frame.store() as store:
        found = store.sessions(prefix, limit=limit + 1)
    more, found = len(found) > limit, found[:limit]
    if frame.json:
        from backtrail.render.json_records import thread_json

        rows = [thread_json(info) | {"messages": info.messages, "user_turns": info.user_turns} for info in found]
        frame.answer({"sessions": rows, "more": more})
        return
    from backtrail.cli import thread_table

    columns = {
        "messages": [f"{info.messages:,}" for info in found],
        "turns": [f"{info.user_turns:,}" for info in found],
    }
    thread_table.show(found, columns, more=more, nothing=thread_table.nothing("session", prefix))
