"""`backtrail pending`: questions of runs that wait for an answer."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, with_context
from backtrail.cli.thread_listing import page_limit_option, prefix_argument


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail pending\n  backtrail pending nightly- --json")
@prefix_argument
@page_limit_option
@with_context
def command(context: CommandContext, prefix: str, limit: int) -> None:
    """List the questions of runs whose name starts with PREFIX that wait for an answer, newest first."""
    from rich.text import Text

    from backtrail.cli.formatting import age, one_line
    from backtrail.cli.output import print_lines
    from backtrail.render.json_records import pending_json
    from backtrail.render.jsonable import short_text

    with context.store() as store:
        found = store.pending(prefix, limit=limit + 1)
    more, page = len(found) > limit, found[:limit]
    if context.json:
        context.print_json({"pending": [pending_json(one) for one in page], "more": more})
        return
    lines = []
    for one in page:
        line = Text(f"{one_line(one.run_id)} {one_line(one.name)!r}", "bold").append(f"  {age(one.asked_at)}", "age")
        if one.expires_at is not None:
            line.append(f"  expires {one.expires_at.isoformat(timespec='seconds')}", "dim")
        lines.append(line)
        lines.append(Text(f"  {one_line(short_text(one.question, 200))}"))
        if one.about is not None:
            lines.append(Text(f"  about {one_line(short_text(one.about, 200))}", "dim"))
        lines.append(Text(f"  digest {one.digest}", "dim"))
    if not page:
        lines.append(Text("no question waits for an answer", "dim"))
    if more:
        lines.append(Text("… and more: raise --limit, or give a prefix", "dim"))
    print_lines(lines)
