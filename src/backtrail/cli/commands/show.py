"""`backtrail show`: the state at a checkpoint, messages as a conversation, the rest as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, at_argument, pass_frame, place, thread_argument

if TYPE_CHECKING:
    from backtrail import Checkpoint, Thread


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail show support-42\n  backtrail show support-42 @~2 --full\n"
    "  backtrail show support-42 good",
)
@thread_argument
@at_argument()
@click.option(
    "-m", "--messages", metavar="N", type=click.IntRange(0), default=50, show_default=True, help="The last so many."
)
@click.option("--full", is_flag=True, help="All messages, tool calls unfolded, values whole.")
@pass_frame
def command(frame: CommandContext, thread: str, at: str, messages: int, full: bool) -> None:
    """Show the state of THREAD at AT (default: the head)."""
    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        checkpoint = place(handle, at)
        if frame.json:
            from backtrail.render.json_records import checkpoint_json
            from backtrail.render.jsonable import to_json

            frame.answer({"checkpoint": checkpoint_json(checkpoint), "state": to_json(handle.load(checkpoint))})
            return
        _show(handle, checkpoint, None if full else messages, full=full)


def _show(thread: Thread[Any], checkpoint: Checkpoint, last: int | None, *, full: bool) -> None:
    from rich.text import Text

    from backtrail.cli import message_output
    from backtrail.cli.output import age, line, marks, paged, size
    from backtrail.render.conversation import conversation_key, read

    outline = thread.outline(at=checkpoint.id)
    key = conversation_key(outline)
    with paged() as out:
        title = Text().append(line(thread.id), "bold")
        title.append(f"  step {checkpoint.step}", "step").append(f"  {checkpoint.id}", "id")
        title.append(f"  {age(checkpoint.created_at)}", "age").append(f"  {size(checkpoint.size)}", "size")
        said = marks(checkpoint.label, checkpoint.tags)
        title.append("  " if said else "").append(said)
        if checkpoint.thread_id != thread.id:
            title.append(f"  (written by {line(checkpoint.thread_id)})", "dim")
        out.print(title)
        if checkpoint.custom:
            out.print(message_output.tree("custom", checkpoint.custom, full=full))
        if key is not None:
            count = next(part.count or 0 for part in outline.parts if part.name == key)
            start = 0 if last is None else max(0, count - last)
            if start:
                out.print(Text(f"… {start:,} earlier messages: --messages {count} or --full", "dim"))
            for part in thread.outline([key], at=checkpoint.id, start=start, stop=count).parts:
                out.print(message_output.message(read(part.value), int(part.name), full=full))
        for part in outline.parts:
            if part.name != key:
                value = part.value if part.known else thread.outline([part.name], at=checkpoint.id)
                out.print(message_output.tree(str(part.name), value, full=full))
