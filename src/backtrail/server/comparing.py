"""Two checkpoints side by side: of one thread, of two forks, or of threads that have nothing in common."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from backtrail import Checkpoint, InvalidInput, NoDirectory, Store, Thread
from backtrail.model import Change
from backtrail.render.graph import ancestry
from backtrail.render.html_page import LEFT_OUT, comparison_page, conversation_page
from backtrail.render.json_records import change_json, checkpoint_json
from backtrail.render.jsonable import truncate
from backtrail.render.message_parser import conversation_key, first_number
from backtrail.server import requests, responses
from backtrail.server.conversation import message_json
from backtrail.server.file_changes import file_changes_json
from backtrail.server.history_cache import HistoryCache
from backtrail.server.page_script import shared_page_script

_SHOWN_VALUE = 2_000
_SHOWN_TEXT = 20_000


class _Side:
    """One of the two: its checkpoint and its conversation."""

    def __init__(self, store: Store, histories: HistoryCache, thread: str, at: str) -> None:
        self.handle: Thread[Any] = store.thread(thread)
        self.checkpoint: Checkpoint = self.handle.get(at, salvage=True)
        with histories.read(thread) as history:
            self.path = {one.id: one for one in ancestry(history.graph.checkpoints(), self.checkpoint.id)}
        outline = self.handle.outline(at=self.checkpoint, salvage=True)
        self.key = conversation_key(outline)
        self.first = first_number(outline)
        self.messages: list[Any] = []
        if self.key is not None:
            parts = self.handle.outline([self.key], at=self.checkpoint, salvage=True).parts
            self.messages = [part.value for part in parts]

    def json(self, start: int, limit: int) -> responses.SideJson:
        """The messages from `start` on."""
        shown = [
            message_json(message, _SHOWN_TEXT) | {"index": index, "number": self.first + index, "step": None}
            for index, message in enumerate(self.messages[start : start + limit], start)
        ]
        return {
            "thread": self.handle.id,
            "checkpoint": checkpoint_json(self.checkpoint),
            "total": max(0, len(self.messages) - start),
            "messages": shown,  # type: ignore[typeddict-item]  # merged from two dicts
        }


def compare(store: Store, histories: HistoryCache, request: requests.ComparisonRequest) -> responses.ComparisonResponse:
    """The conversation from where they part, the changes of the state and of the files, from the first to the
    second."""
    left = _Side(store, histories, request.thread, request.at)
    right = _Side(store, histories, request.other, request.other_at)
    ancestor = next((one for id, one in left.path.items() if id in right.path), None)
    same = _same(left, right)
    changes = [change for change in _changes(left, right) if not _is_message(change, left.key)]
    files = _files(left, right)
    return {
        "left": left.json(same, request.limit),
        "right": right.json(same, request.limit),
        "ancestor": checkpoint_json(ancestor) if ancestor is not None else None,
        "key": left.key or right.key,
        "same": same,
        "total": len(changes),
        "changes": [truncate(change_json(change), _SHOWN_VALUE) for change in changes[: request.limit]],
        "files_total": len(files) if files is not None else 0,
        "files": file_changes_json(files[: request.limit]) if files is not None else None,
    }


def html_page(store: Store, histories: HistoryCache, request: requests.ExportRequest) -> str:
    """A conversation, or two from where they part, as one HTML file."""
    leave_out = [name for name in request.leave_out.split(",") if name]
    if unknown := set(leave_out) - set(LEFT_OUT):
        raise InvalidInput(f"leave_out={','.join(sorted(unknown))!r} is unknown: use some of {', '.join(LEFT_OUT)}")
    left = _Side(store, histories, request.thread, request.at)
    if request.other is None:
        note = f"Step {left.checkpoint.step}, saved {left.checkpoint.created_at:%Y-%m-%d %H:%M} UTC."
        return conversation_page(request.thread, note, left.messages, leave_out, shared_page_script())
    right = _Side(store, histories, request.other, request.other_at)
    same = _same(left, right)
    sides = [(f"{s.handle.id} step {s.checkpoint.step}", s.messages[same:], s.first + same) for s in (left, right)]
    title, note = f"{request.thread} and {request.other}", f"The first {same} messages are the same, and not shown."
    return comparison_page(title, note, sides, leave_out, shared_page_script())


def _same(left: _Side, right: _Side) -> int:
    """The number of messages at the beginning that are the same."""
    pairs = zip(left.messages, right.messages, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _changes(left: _Side, right: _Side) -> tuple[Change, ...]:
    return left.handle.diff(left.checkpoint, right.checkpoint).changes


def _is_message(change: Change, key: str | None) -> bool:
    """True if the change is of a message: the columns show those."""
    return key is not None and (change.path == key or change.path.startswith((f"{key}[", f"{key}.")))


def _files(left: _Side, right: _Side) -> Any:
    if left.checkpoint.files is None or right.checkpoint.files is None:
        return None
    try:
        return right.handle.workspace(right.checkpoint).diff(left.checkpoint, right.checkpoint).changes
    except NoDirectory:
        return None
