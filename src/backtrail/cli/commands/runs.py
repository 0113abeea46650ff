"""`backtrail runs`: jobs that have not finished."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, limit_option, pass_frame


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail runs\n  backtrail runs nightly- --json")
@click.argument("prefix", default="")
@limit_option(200, "At most so many.")
@pass_frame
def command(frame: CommandContext, prefix: str, limit: int) -> None:
    """List runs whose name starts with PREFIX that have not finished, newest first: these can be resumed."""
    with frame.store() as store:
        found = store.runs(prefix, limit=limit + 1)
    more, found = len(found) > limit, found[:limit]
    if frame.json:
        from backtrail.render.json_records import thread_json

        facts = ("task", "iteration", "input_tokens", "output_tokens")
        frame.answer(
            {"runs": [thread_json(i) | {name: getattr(i, name) for name in facts} for i in found], "more": more}
        )
        return
    from backtrail.cli import thread_table

    columns = {
        "task": [info.task for info in found],
        "iteration": [str(info.iteration) for info in found],
        "tokens in/out": [f"{info.input_tokens:,} / {info.output_tokens:,}" for info in found],
    }
    nothing = thread_table.nothing("run", prefix) if prefix else "no run is waiting: all have finished"
    thread_table.show(found, columns, more=more, nothing=nothing)
