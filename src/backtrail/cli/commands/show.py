"""`backtrail show`: print the state at a checkpoint, messages as a conversation, the rest as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, at_argument, optional_thread_argument, with_context

if TYPE_CHECKING:
    from backtrail import Checkpoint, Thread


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail show support-42\n  backtrail show support-42 @~2 --full\n"
    "  backtrail show support-42 good\n  backtrail show 3      turn 3 of the coding agent's session here",
)
@optional_thread_argument
@at_argument(default=None)
@click.option(
    "-m",
    "--messages",
    metavar="N",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    help="Show the last N messages.",
)
@click.option("--full", is_flag=True, help="All messages, tool calls unfolded, values not shortened.")
@with_context
def command(context: CommandContext, thread: str | None, at: str | None, messages: int, full: bool) -> None:
    """Show the state of THREAD at AT (default: the head).

    Of a session of a coding agent (default: the newest one in this directory), AT is the number of a turn (default: the
    newest): its prompt, its tools with their results, its answer, and what it changed in the files.
    """
    with context.named(thread, at) as named:
        handle, at = named.thread, named.words[0] if named.words else "@"
        if named.session is not None and (not named.words or (at.isascii() and at.isdigit())):
            from backtrail.cli.turn_output import print_turn

            turns = named.session.turns()
            place = turns.index(named.session.turn(int(at))) if named.words else len(turns) - 1
            if turns:
                print_turn(context, named.session, turns, place, full=full)
                return
        checkpoint = handle.get(at, salvage=True)
        if context.json:
            from backtrail.render.json_records import checkpoint_json
            from backtrail.render.jsonable import to_json

            context.print_json(
                {"checkpoint": checkpoint_json(checkpoint), "state": to_json(handle.load(checkpoint, salvage=True))}
            )
            return
        _print_checkpoint(handle, checkpoint, None if full else messages, full=full)


def _print_checkpoint(thread: Thread[Any], checkpoint: Checkpoint, last: int | None, *, full: bool) -> None:
    from rich.text import Text

    from backtrail import Corrupt, Hole
    from backtrail.cli.formatting import age, one_line, size
    from backtrail.cli.message_output import render_message, render_value
    from backtrail.cli.output import label_and_tags, paged
    from backtrail.render.message_parser import conversation_key, first_number, parse_message

    outline = thread.outline(at=checkpoint, salvage=True)
    if isinstance(outline.value, Hole):  # nothing of it is left
        raise Corrupt(outline.value.where, outline.value.reason)
    key = conversation_key(outline)
    with paged() as out:
        title = Text().append(one_line(thread.id), "bold")
        title.append(f"  step {checkpoint.step}", "step").append(f"  {checkpoint.id}", "id")
        title.append(f"  {age(checkpoint.created_at)}", "age").append(f"  {size(checkpoint.size)}", "size")
        marks = label_and_tags(checkpoint.label, checkpoint.tags)
        title.append("  " if marks else "").append(marks)
        if checkpoint.thread_id != thread.id:
            title.append(f"  (written by {one_line(checkpoint.thread_id)})", "dim")
        out.print(title)
        if checkpoint.custom:
            out.print(render_value("custom", checkpoint.custom, full=full))
        if key is not None:
            count = next(part.count or 0 for part in outline.parts if part.name == key)
            first = first_number(outline)
            start = 0 if last is None else max(0, count - last)
            if start:
                out.print(Text(f"… {start:,} earlier messages: --messages {count} or --full", "dim"))
            for part in thread.outline([key], at=checkpoint, start=start, stop=count, salvage=True).parts:
                message = parse_message(part.value)
                if full or not message.bookkeeping:
                    out.print(render_message(message, first + int(part.name), full=full))
        for part in outline.parts:
            if part.name != key:
                value = part.value if part.known else thread.outline([part.name], at=checkpoint, salvage=True)
                out.print(render_value(str(part.name), value, full=full))
