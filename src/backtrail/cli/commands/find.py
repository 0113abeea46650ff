"""`backtrail find`: find checkpoints by label, tag or custom field, or messages by their text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, ExitCode, with_context

if TYPE_CHECKING:
    from backtrail import Checkpoint, Store, Thread

_PAGE_SIZE = 500


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail find --tag green\n  backtrail find support- --label before-deploy\n"
    "  backtrail find --text 'rate limit'\n  backtrail find --custom user=42 --json",
)
@click.argument("prefix", default="")
@click.option("--label", help="Checkpoints of this label.")
@click.option("--tag", help="Checkpoints with this tag.")
@click.option("--custom", metavar="KEY=VALUE", multiple=True, help="With this custom field (JSON, or a plain word).")
@click.option("--text", help="Messages at the heads that contain this text, ignoring case.")
@with_context
def command(
    context: CommandContext, prefix: str, label: str | None, tag: str | None, custom: tuple[str, ...], text: str | None
) -> None:
    """Find checkpoints in all threads whose name starts with PREFIX, including those that rewinds left behind.

    Exits with 3 if there are none.
    """
    if not (label or tag or custom or text):
        raise click.UsageError("say what to find: --label, --tag, --custom or --text.")
    if text and (label or tag or custom):
        raise click.UsageError("--text looks into messages, the others at checkpoints: ask for one of them at a time.")
    fields = dict(map(_parse_field, custom))
    found: list[tuple[Checkpoint, int | None, str]] = []
    with context.store_of(prefix) as store:
        for thread in _threads(store, prefix):
            if text is not None:
                found += _matching_messages(thread, text)
            else:
                # A fork inherits its parent's checkpoints: each is listed once.
                known = {c.id for c, _, _ in found}
                matching = thread.find(tag=tag, label=label, custom=fields or None)
                found += [(c, None, "") for c in matching if c.id not in known]
    if context.json:
        from backtrail.render.json_records import checkpoint_json

        context.print_json(
            {"found": [{"checkpoint": checkpoint_json(c), "message": i, "preview": p or None} for c, i, p in found]}
        )
    else:
        _print_found(found)
    if not found:
        raise click.exceptions.Exit(ExitCode.NOT_FOUND)


def _parse_field(text: str) -> tuple[str, Any]:
    import json

    key, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--custom takes KEY=VALUE, not {text!r}.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _threads(store: Store, prefix: str) -> Iterator[Thread[Any]]:
    after: str | None = None
    while page := store.threads(prefix, limit=_PAGE_SIZE, after=after):
        yield from (store.thread(info.id) for info in page)
        after = page[-1].id


def _matching_messages(thread: Thread[Any], text: str) -> Iterator[tuple[Checkpoint, int | None, str]]:
    from backtrail.render.text_search import Wanted, matching_messages

    head = thread.head
    if head is not None:
        for found in matching_messages(thread, head, Wanted(text)):
            yield head, found.number, f"{found.role}: {found.before}{found.match}{found.after}"


def _print_found(found: list[tuple[Checkpoint, int | None, str]]) -> None:
    from rich.text import Text

    from backtrail.cli.formatting import age, one_line
    from backtrail.cli.output import label_and_tags, paged

    with paged() as out:
        for checkpoint, number, preview in found:
            row = Text().append(one_line(checkpoint.thread_id), "bold").append(f"  {checkpoint.step}", "step")
            row.append(f" {checkpoint.id}", "id").append(f" {age(checkpoint.created_at)}", "age")
            marks = label_and_tags(checkpoint.label, checkpoint.tags)
            row.append(" " if marks else "").append(marks)
            if number is not None:
                row.append(f"  message #{number}  ", "dim").append(one_line(preview))
            out.print(row, no_wrap=True, overflow="ellipsis")
        if not found:
            out.print(Text("nothing found", "dim"))
