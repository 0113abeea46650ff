"""`backtrail steps`: the recorded steps of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backtrail.cli.context import Command, CommandContext, with_context

if TYPE_CHECKING:
    from backtrail.render.json_records import RunStepJson


def cost_text(step: RunStepJson) -> str:
    """The tokens and the cost of a step, "" if its result does not have them."""
    tokens, cost = step["tokens"], step["cost"]
    if tokens is None:
        return ""
    told = f"{tokens['input']:,} + {tokens['output']:,} tokens"
    return told if cost is None else f"{told}, ${cost:.4f}"


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail steps run-7\n  backtrail steps run-7 --json")
@click.argument("run")
@with_context
def command(context: CommandContext, run: str) -> None:
    """List the recorded steps of RUN, oldest first: how long each took, how often it was tried, what came of it, and
    what it cost, if its result says what the model used."""
    from rich.table import Table
    from rich.text import Text

    from backtrail.cli.formatting import one_line
    from backtrail.cli.output import paged
    from backtrail.render.json_records import outcome_json, step_json
    from backtrail.render.jsonable import short_text

    with context.store() as store:
        handle = store.run(run)
        outcome, steps = handle.outcome(), handle.steps()
    if context.json:
        context.print_json({"run": run, **outcome_json(outcome), "steps": [step_json(step) for step in steps]})
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    used = [cost_text(step_json(step)) for step in steps]
    titles = ("", "step", "key", "seconds", "tries", *(["cost"] if any(used) else []), "outcome")
    for title in titles:
        table.add_column(title, justify="right" if title in ("", "seconds", "tries") else "left", overflow="fold")
    for number, (step, cost) in enumerate(zip(steps, used, strict=True), 1):
        name = step.name if step.kind == "step" else f"{step.kind}: {step.name}"
        came = str(step.error) if step.error is not None else short_text(step.result, 60)
        table.add_row(
            Text(str(number), "dim"),
            Text(one_line(name)),
            Text("" if step.key is None else one_line(str(step.key))),
            Text(f"{step.seconds:.3f}"),
            Text(str(step.attempts)),
            *([Text(cost)] if any(used) else []),
            Text(one_line("started" if step.status == "started" else came), "removed" if step.error else ""),
        )
    with paged() as out:
        ended = f", {outcome.error}" if outcome.error is not None else ""
        out.print(Text(f"{one_line(run)} is {outcome.status}{one_line(ended)}"))
        out.print(table if steps else Text("no step is recorded", "dim"))
