"""`backtrail log`: a thread's history as a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, limit_option, pass_frame, thread_argument

if TYPE_CHECKING:
    from backtrail import Checkpoint, Fork, Outline, Thread
    from backtrail.cli.ansi import Span
    from backtrail.render.graph import GraphRow


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail log support-42\n  backtrail log support-42 --limit 10 --trail",
)
@thread_argument
@limit_option(100, "The newest so many.")
@click.option("--trail", is_flag=True, help="Only the way to the head, without what rewinds left behind.")
@pass_frame
def command(frame: CommandContext, thread: str, limit: int, trail: bool) -> None:
    """Draw the history of THREAD as a graph, newest first.

    ◉ is the head, ● a checkpoint on the way to it, ○ one that a rewind left behind. Each line has the step, its id, its
    age, its label and tags, and what it added.
    """
    from backtrail import ThreadNotFound

    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        head = handle.head
        if head is None:
            raise ThreadNotFound(thread)
        history = handle.history(limit=limit + 1, all=not trail)
        more, history = len(history) > limit, history[-limit:]
        forks = handle.forks()
        if frame.json:
            from backtrail.render.json_records import checkpoint_json, fork_json

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
    from backtrail.cli.ansi import Span, show
    from backtrail.render.graph import arrange, draw
    from backtrail.render.refs import shorten

    rows = arrange(history, head)
    by_id = {row.checkpoint.id: row for row in rows}
    short = shorten(by_id)
    graph = draw(rows, head)
    rail = max((len(text) for _, text in graph), default=0)
    width = max(map(len, short.values()), default=0)
    outlines: dict[str, Outline] = {}
    lines: list[list[Span]] = []
    for id, text in graph:
        line = [Span(text[:1], "rail"), Span(text[1:].ljust(rail - 1), "rail.old")]
        if id is not None:
            here = [fork for fork in forks if fork.at == id]
            told = _describe(thread, by_id[id], short[id].ljust(width), outlines, here)
            faint = "" if by_id[id].on_trail else " dim"
            line += [Span("  "), *(Span(span.text, span.style + faint) for span in told)]
        lines.append(line)
    if more:
        lines.append([Span("… older checkpoints: raise --limit", "dim")])
    show(lines)


def _describe(
    thread: Thread[Any], row: GraphRow, short: str, outlines: dict[str, Outline], forks: list[Fork]
) -> list[Span]:
    from backtrail.cli.ansi import Span
    from backtrail.cli.formatting import STYLES, age, line, size
    from backtrail.render.change_summary import added

    checkpoint = row.checkpoint
    spans = [
        Span(f"{checkpoint.step:>3}", "step"),
        Span(f" {short}", "id"),
        Span(f" {age(checkpoint.created_at):>8}", "age"),
    ]
    if checkpoint.label:
        spans.append(Span(f" [{line(checkpoint.label)}]", "label"))
    spans += [Span(f" #{line(tag)}", "tag") for tag in checkpoint.tags]
    if checkpoint.files:
        spans.append(Span(" ▣ files", "tag"))
    spans += [Span(f" ↱ {line(f.thread_id)}", "label" if f.relation == "child" else "dim") for f in forks]
    what = added(thread, checkpoint, outlines)
    if what.what:
        spans.append(Span(f"  {line(what.what)}", "added"))
    spans.append(Span(f" {size(checkpoint.written)}", "size"))
    if what.preview:
        spans += [Span(f"  {line(what.role)}: ", what.role if what.role in STYLES else "dim"), Span(line(what.preview))]
    return spans
