"""`backtrail log`: a thread's history as a graph."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, limit_option, optional_thread_argument, with_context

if TYPE_CHECKING:
    from backtrail import Checkpoint, Fork, Outline, Thread
    from backtrail.cli.ansi import Span
    from backtrail.render.graph import GraphRow


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail log support-42\n  backtrail log support-42 --limit 10 --trail\n"
    "  backtrail log support-42 --follow\n  backtrail log      the turns of the coding agent's session here",
)
@optional_thread_argument
@limit_option(100, "Maximum number of checkpoints, newest first.")
@click.option("--trail", is_flag=True, help="Only the ancestors of the head, without what rewinds left behind.")
@click.option("-f", "--follow", is_flag=True, help="Go on, and print new checkpoints as they are saved, until Ctrl-C.")
@with_context
def command(context: CommandContext, thread: str | None, limit: int, trail: bool, follow: bool) -> None:
    """Draw the history of THREAD as a graph, newest first.

    ◉ is the head, ● an ancestor of it, ○ a checkpoint that a rewind left behind. Each line has the step, id, age, label
    and tags of a checkpoint, and what it added. With --follow and --json, each new checkpoint is one line of JSON.

    Of a session of a coding agent (default: the newest one in this directory) the turns are listed.
    """
    with context.named(thread) as named, contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the way to stop --follow
        handle = named.thread
        if named.session is not None and not follow:
            from backtrail.cli.agent_output import print_turns

            print_turns(context, named.session, limit)
            return
        head = handle.get("@", salvage=True)
        history = handle.history(limit=limit + 1, all=not trail, salvage=True)
        more, history = len(history) > limit, history[-limit:]
        forks = handle.forks()
        if context.json:
            from backtrail.render.json_records import checkpoint_json, fork_json

            rows = [checkpoint_json(c) for c in reversed(history)]
            context.print_json(
                {
                    "thread": handle.id,
                    "head": head.id,
                    "checkpoints": rows,
                    "forks": [*map(fork_json, forks)],
                    "more": more,
                }
            )
        else:
            _print_graph(handle, history, head.id, forks, more=more)
        if follow:
            from backtrail.cli.following import follow_log

            follow_log(handle, head, as_json=context.json)


def _print_graph(thread: Thread[Any], history: list[Checkpoint], head: str, forks: list[Fork], *, more: bool) -> None:
    from backtrail.cli.ansi import Span, print_lines
    from backtrail.render.graph import Graph, draw
    from backtrail.render.short_ids import shorten_ids

    rows = Graph(history, head).page()
    by_id = {row.checkpoint.id: row for row in rows}
    short = shorten_ids(by_id)
    graph = draw(rows, head)
    rail = max((len(text) for _, text in graph), default=0)
    width = max(map(len, short.values()), default=0)
    outlines: dict[str, Outline] = {}
    forks_at: dict[str, list[Fork]] = {}
    for fork in forks:
        forks_at.setdefault(fork.at, []).append(fork)
    lines: list[list[Span]] = []
    for id, text in graph:
        line = [Span(text[:1], "rail"), Span(text[1:].ljust(rail - 1), "rail.old")]
        if id is not None:
            description = _describe(thread, by_id[id], short[id].ljust(width), outlines, forks_at.get(id, []))
            faint = "" if by_id[id].on_trail else " dim"
            line += [Span("  "), *(Span(span.text, span.style + faint) for span in description)]
        lines.append(line)
    if more:
        lines.append([Span("… older checkpoints: raise --limit", "dim")])
    print_lines(lines)


def _describe(
    thread: Thread[Any], row: GraphRow, short: str, outlines: dict[str, Outline], forks: list[Fork]
) -> list[Span]:
    from backtrail.cli.ansi import Span
    from backtrail.cli.formatting import STYLES, age, one_line, size
    from backtrail.render.change_summary import summarize

    checkpoint = row.checkpoint
    spans = [
        Span(f"{checkpoint.step:>3}", "step"),
        Span(f" {short}", "id"),
        Span(f" {age(checkpoint.created_at):>8}", "age"),
    ]
    if checkpoint.label:
        spans.append(Span(f" [{one_line(checkpoint.label)}]", "label"))
    spans += [Span(f" #{one_line(tag)}", "tag") for tag in checkpoint.tags]
    if checkpoint.files:
        spans.append(Span(" ▣ files", "tag"))
    spans += [Span(f" ↱ {one_line(f.thread_id)}", "label" if f.relation == "child" else "dim") for f in forks]
    if checkpoint.damage:
        spans.append(Span(f" damaged: {one_line(checkpoint.damage)}", "removed"))
    change = summarize(thread, checkpoint, outlines)
    if change.text:
        spans.append(Span(f"  {one_line(change.text)}", "added"))
    spans.append(Span(f" {size(checkpoint.written)}", "size"))
    if change.preview:
        style = change.role if change.role in STYLES else "dim"
        spans += [Span(f"  {one_line(change.role)}: ", style), Span(one_line(change.preview))]
    return spans
