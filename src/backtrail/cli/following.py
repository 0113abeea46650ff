"""Follows a live thread in the terminal: messages for `tail -f`, checkpoints for `log --follow`, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.formatting import one_line, safe_json

if TYPE_CHECKING:
    from backtrail import Checkpoint, Thread

POLL_SECONDS = 0.4
_REMEMBERED = 200  # messages that were printed
_BEHIND = 1000  # checkpoints that are printed after a long silence; older ones are only counted


def new_checkpoints(thread: Thread[Any], seen: Checkpoint) -> Iterator[list[Checkpoint]]:
    """What was saved since `seen`, each time that something was; after a move of the head, the new head alone."""
    while True:
        head = thread.get("@", salvage=True)
        if head.id != seen.id:
            recent = thread.history(limit=_BEHIND, salvage=True)
            ids = [checkpoint.id for checkpoint in recent]
            yield recent[ids.index(seen.id) + 1 :] if seen.id in ids else [head]
            seen = head
        time.sleep(POLL_SECONDS)


def follow_log(thread: Thread[Any], seen: Checkpoint, *, as_json: bool) -> None:
    """Print each new checkpoint on a line."""
    from backtrail.render.change_summary import summarize
    from backtrail.render.json_records import checkpoint_json

    known = {seen.id}
    for found in new_checkpoints(thread, seen):
        for checkpoint in found:
            if as_json:
                _echo_json_line(checkpoint_json(checkpoint))
                continue
            change = summarize(thread, checkpoint)
            moved = "" if checkpoint.parent_id in known or len(found) > 1 else "head moved: "
            label = f" [{one_line(checkpoint.label)}]" if checkpoint.label else ""
            preview = f"  {one_line(change.role)}: {one_line(change.preview)}" if change.preview else ""
            click.echo(f"{moved}{checkpoint.step:>3} {checkpoint.id}{label}  {one_line(change.text)}{preview}")
        known = {checkpoint.id for checkpoint in found}


def _echo_json_line(value: Any) -> None:
    """Print JSON on one line, without control characters."""
    from backtrail.render.jsonable import json_bytes

    click.echo(safe_json(json_bytes(value).decode()))


class MessageFollower:
    """Prints the messages of a thread that were not printed yet."""

    def __init__(self, thread: Thread[Any], *, full: bool, as_json: bool) -> None:
        self._thread = thread
        self._full = full
        self._json = as_json
        self._printed: dict[int, Any] = {}  # the last messages, by index
        self._next = 0  # the index after the last one

    def start(self, at: Checkpoint, last: int) -> None:
        """Print the last messages at a checkpoint."""
        self._print(at, last)

    def follow(self, seen: Checkpoint) -> None:
        """Print what comes."""
        for found in new_checkpoints(self._thread, seen):
            self._print(found[-1], None)

    def _print(self, at: Checkpoint, last: int | None) -> None:
        from backtrail.cli.message_output import render_message
        from backtrail.cli.output import PIPE_WIDTH, console
        from backtrail.render.jsonable import to_json
        from backtrail.render.message_parser import conversation_key, first_number, parse_message

        outline = self._thread.outline(at=at, salvage=True)
        key = conversation_key(outline)
        count = next((part.count or 0 for part in outline.parts if part.name == key), 0) if key is not None else 0
        start = self._first_new(key, at, count) if last is None else self._first_of(last, key, at, count)
        self._next = count
        if key is None or count == start:
            return
        out = console()
        out = out if out.is_terminal else console(width=PIPE_WIDTH)
        first = first_number(outline)
        found = self._thread.outline([key], at=at, start=start, stop=count, salvage=True)
        for part in found.parts:
            self._printed[int(part.name)] = part.value
            if self._json:
                _echo_json_line(to_json(part.value))
                continue
            message = parse_message(part.value)
            if not message.bookkeeping:
                out.print(render_message(message, first + int(part.name), full=self._full))
        for index in sorted(self._printed)[:-_REMEMBERED]:
            del self._printed[index]

    def _first_of(self, last: int, key: str | None, at: Checkpoint, count: int) -> int:
        """The index of the first of the last messages. Lines of a transcript that are not shown are not counted; as
        JSON, all are shown."""
        from backtrail.render.message_parser import parse_message

        start, span = max(0, count - last), last
        while key is not None and start and last and not self._json:
            found = self._thread.outline([key], at=at, start=start, stop=count, salvage=True).parts
            shown = [int(part.name) for part in found if not parse_message(part.value).bookkeeping]
            if len(shown) >= last:
                return shown[-last]
            span *= 2
            start = max(0, count - span)
        return start

    def _first_new(self, key: str | None, at: Checkpoint, count: int) -> int:
        """The index of the first message that is another than the one that was printed: a rewind may have put new ones
        in the place of old ones."""
        known = sorted(self._printed)
        if not known or key is None:
            return min(self._next, count)
        found = self._thread.outline([key], at=at, start=known[0], stop=known[-1] + 1, salvage=True).parts
        same = sum(1 for _ in takewhile(lambda part: self._printed[int(part.name)] == part.value, found))
        for index in known[same:]:
            del self._printed[index]
        return min(count, known[0] + same)
