"""`clew log`: a thread's history as a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clew.cli.frame import Command, Frame, pass_frame, thread_argument

if TYPE_CHECKING:
    from clew import Checkpoint, Fork, Outline, Thread
    from clew.present.graph import GraphRow


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  clew log support-42\n  clew log support-42 --limit 10 --trail",
)
@thread_argument
@click.option("-l", "--limit", type=click.IntRange(1), default=100, show_default=True, help="The newest so many.")
@click.option("--trail", is_flag=True, help="Only the way to the head, without what rewinds left behind.")
@pass_frame
def command(frame: Frame, thread: str, limit: int, trail: bool) -> None:
    """Draw the history of THREAD as a graph, newest first.

    ◉ is the head, ● a checkpoint on the way to it, ○ one that a rewind left behind. Each line has the step, its id, its
    age, its label and tags, and what it added.
    """
    from clew import ThreadNotFound

    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        head = handle.head
        if head is None:
            raise ThreadNotFound(thread)
        history = handle.history(limit=limit + 1, all=not trail)
        more, history = len(history) > limit, history[-limit:]
        forks = handle.forks()
        if frame.json:
            from clew.present.records import checkpoint_json, fork_json

            rows = [checkpoint_json(c) for c in reversed(history)]
            frame.answer(
                {
                    "thread": thread,
                    "head": head.id,
                    "checkpoints": rows,
                    "forks": [*map(fork_json, forks)],
                    "more": more,
                }
            )
            return
        _show(handle, history, head.id, forks, more=more)


def _show(thread: Thread[Any], history: list[Checkpoint], head: str, forks: list[Fork], *, more: bool) -> None:
    from rich.text import Text

    from clew.cli.screen import paged
    from clew.present.graph import arrange, draw
    from clew.present.places import shorten

    rows = arrange(history, head)
    by_id = {row.checkpoint.id: row for row in rows}
    short = shorten(by_id)
    rail = max((len(text) for _, text in draw(rows, head)), default=0)
    width = max(map(len, short.values()), default=0)
    outlines: dict[str, Outline] = {}
    with paged() as out:
        for id, text in draw(rows, head):
            line = Text().append(text[:1], "rail").append(text[1:].ljust(rail - 1), "rail.old")
            if id is not None:
                row = by_id[id]
                line.append("  ")
                line.append(_describe(thread, row, short[id].ljust(width), outlines, [f for f in forks if f.at == id]))
                if not row.on_trail:
                    line.stylize("dim")
            out.print(line, no_wrap=True, overflow="ellipsis", crop=True)
        if more:
            out.print(Text("… older checkpoints: raise --limit", "dim"))


def _describe(thread: Thread[Any], row: GraphRow, short: str, outlines: dict[str, Outline], forks: list[Fork]) -> Any:
    from rich.text import Text

    from clew.cli.screen import age, line, marks, size
    from clew.present.added import added

    checkpoint = row.checkpoint
    text = Text().append(f"{checkpoint.step:>3}", "step")
    text.append(f" {short}", "id")
    text.append(f" {age(checkpoint.created_at):>8}", "age")
    said = marks(checkpoint.label, checkpoint.tags)
    if said.plain:
        text.append(" ").append(said)
    if checkpoint.files:
        text.append(" ▣ files", "tag")
    for fork in forks:
        text.append(f" ↱ {line(fork.thread_id)}", "label" if fork.relation == "child" else "dim")
    what = added(thread, checkpoint, outlines)
    if what.what:
        text.append(f"  {line(what.what)}", "added")
    text.append(f" {size(checkpoint.written)}", "size")
    if what.preview:
        text.append(
            f"  {line(what.role)}: ", what.role if what.role in ("user", "assistant", "tool", "system") else "dim"
        )
        text.append(line(what.preview), "default")
    return text
