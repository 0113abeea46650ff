"""The conversation at a checkpoint for the inspector: messages with the step that added each, turns, and images.

Which step added a message is found by bisection: along the path to a checkpoint the list of messages grows, so a few
outlines tell. Checkpoints never change, so the counts and the turns are cached.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from backtrail import BacktrailError, Checkpoint, NotFound, Outline, Store, Thread
from backtrail.lru import LRU
from backtrail.render.conversation_turns import ConversationTurn, turns_of
from backtrail.render.graph import ancestry
from backtrail.render.jsonable import truncate
from backtrail.render.message_facts import facts_of
from backtrail.render.message_images import Image
from backtrail.render.message_parser import conversation_key, first_number, is_message, parse_message
from backtrail.render.step_filter import StepFilter
from backtrail.server import conversation_responses as responses
from backtrail.server import requests
from backtrail.server.history_cache import HistoryCache
from backtrail.server.step_list import step_filter

SHOWN_TEXT = 20_000  # characters of a text that are sent, unless `whole` was requested
_CACHED_COUNTS = 200_000
_CACHED_TURNS = 8  # conversations
_TOOLS = 12  # of a turn
_ITEM = re.compile(r"\[(\d+)\]")  # in the path of a change, after the key
_MARKED_RUNS = 1_000  # steps with a label or a tag that a filter of turns looks at, from the newest on


class Conversations:
    """Reads conversations of one store."""

    def __init__(self, store: Store, histories: HistoryCache) -> None:
        self._store = store
        self._histories = histories
        self._lock = threading.Lock()  # around the caches: requests run in several threads
        self._counts: LRU[tuple[str, str], int] = LRU(_CACHED_COUNTS)
        self._turns: LRU[str, list[ConversationTurn]] = LRU(_CACHED_TURNS)  # by checkpoint
        self._newest_turns: LRU[str, str] = LRU(_CACHED_TURNS)  # thread -> the checkpoint whose turns were read last

    def messages(self, request: requests.MessagesRequest, checkpoint: Checkpoint) -> responses.MessagesResponse:
        """A page of the conversation at a checkpoint."""
        handle = self._store.thread(request.thread)
        outline = handle.outline(at=checkpoint, salvage=True)
        key = self.key(handle, checkpoint, outline)
        if key is None:
            return {"key": None, "total": 0, "start": 0, "messages": []}
        total = _count(outline, key)
        start = max(0, total - request.limit) if request.start is None else request.start
        parts = handle.outline([key], at=checkpoint, start=start, stop=start + request.limit, salvage=True).parts
        limit = 10**9 if request.whole else SHOWN_TEXT
        first = first_number(outline)
        steps = self._steps(handle, checkpoint, key, [int(part.name) for part in parts])
        shown = [
            message_json(part.value, limit) | {"index": part.name, "number": first + int(part.name), "step": step}
            for part, step in zip(parts, steps, strict=True)
        ]
        return {"key": key, "total": total, "start": start, "messages": shown}  # type: ignore[typeddict-item]  # merged

    def key(self, handle: Thread[Any], checkpoint: Checkpoint, outline: Outline) -> str | None:
        """The key of the state that holds messages: a list of numbers does not, whatever its name."""
        key = conversation_key(outline)
        if key is None or not _count(outline, key):
            return key
        last = _count(outline, key)
        found = handle.outline([key], at=checkpoint, start=last - 1, stop=last, salvage=True).parts
        return key if not found or is_message(found[0].value) else None

    def image(self, request: requests.ImageRequest, checkpoint: Checkpoint) -> Image:
        """One image of a message."""
        handle = self._store.thread(request.thread)
        key = conversation_key(handle.outline(at=checkpoint, salvage=True))
        if key is not None:
            parts = handle.outline([key], at=checkpoint, start=request.message, stop=request.message + 1, salvage=True)
            images = parse_message(parts.parts[0].value).images if parts.parts else ()
            if request.image < len(images) and images[request.image].data:
                return images[request.image]
        raise NotFound(f"message {request.message} of thread {request.thread!r} has no image {request.image}")

    def turns(self, request: requests.ConversationRequest, checkpoint: Checkpoint) -> responses.ConversationResponse:
        """A page of the turns at a checkpoint, newest first."""
        handle = self._store.thread(request.thread)
        outline = handle.outline(at=checkpoint, salvage=True)
        key = self.key(handle, checkpoint, outline)
        found = self._filtered(handle, checkpoint, key, step_filter(request)) if key is not None else []
        newest = found[::-1][request.start : request.start + request.limit]
        borders = [index for _, turn in newest for index in (turn.start, turn.stop - 1)]
        steps = self._steps(handle, checkpoint, key, borders) if key is not None else []
        shown: list[responses.ConversationTurnJson] = []
        for place, (number, turn) in enumerate(newest):
            one = msgspec.to_builtins(turn)
            one["tools"], one["more_tools"] = one["tools"][:_TOOLS], max(0, len(one["tools"]) - _TOOLS)
            first, last = steps[2 * place], steps[2 * place + 1]
            if one["duration"] is None and first is not None and last is not None:
                one["duration"] = _seconds(first, last)
            shown.append(one | {"number": number, "first": first, "last": last})
        totals = _totals([turn for _, turn in found])
        return {"total": len(found), "start": request.start, "turns": shown, "totals": totals}

    def _filtered(
        self, handle: Thread[Any], checkpoint: Checkpoint, key: str, wanted: StepFilter
    ) -> list[tuple[int, ConversationTurn]]:
        """The turns that a filter keeps, with their numbers from 1 on, oldest first."""
        ranges = self._marked(handle, checkpoint, key, wanted) if wanted.marks else [range(10**9)]
        return [
            (number, turn)
            for number, turn in enumerate(self._all_turns(handle, checkpoint, key), 1)
            if wanted.fits_turn(turn) and any(one.start < turn.stop and turn.start < one.stop for one in ranges)
        ]

    def _marked(self, handle: Thread[Any], checkpoint: Checkpoint, key: str, wanted: StepFilter) -> list[range]:
        """The messages that were added by steps whose label, tags and time fit. Steps in a row are one range, so that
        few counts are needed for many steps."""
        with self._histories.read(handle.id) as history:
            path = list(ancestry(history.graph.checkpoints(), checkpoint.id))[::-1]
        runs = groupby(range(len(path)), key=lambda place: wanted.marked(path[place]))
        places = [list(run) for fits, run in runs if fits][-_MARKED_RUNS:]
        return [
            range(
                self._count_at(handle, path[run[0] - 1], key) if run[0] else 0,
                self._count_at(handle, path[run[-1]], key),
            )
            for run in places
        ]

    def _all_turns(self, handle: Thread[Any], checkpoint: Checkpoint, key: str) -> list[ConversationTurn]:
        with self._lock:
            found = self._turns.get(checkpoint.id)
            before = self._newest_turns.get(handle.id)
        if found is None:
            found = self._extended(handle, before, checkpoint, key) if before is not None else None
            if found is None:
                found = turns_of([part.value for part in handle.outline([key], at=checkpoint, salvage=True).parts])
            with self._lock:
                self._turns.put(checkpoint.id, found)
                self._newest_turns.put(handle.id, checkpoint.id)
        return found

    def _extended(self, handle: Thread[Any], before: str, now: Checkpoint, key: str) -> list[ConversationTurn] | None:
        """The turns at a checkpoint from those at another, of which only the last is read again; None if an earlier
        message changed. A live agent adds to the last turn, or begins the next."""
        with self._lock:
            known = self._turns.get(before)
        if not known:
            return None
        *whole, last = known
        try:
            changes = handle.diff(before, now).changes
        except BacktrailError:
            return None  # damaged, or pruned meanwhile
        for change in changes:
            if change.path == key or change.path.startswith((f"{key}[", f"{key}.")):
                index = _ITEM.match(change.path, len(key))
                if index is None or int(index[1]) < last.start:
                    return None
        read = turns_of([part.value for part in handle.outline([key], at=now, start=last.start, salvage=True).parts])
        moved = [
            msgspec.structs.replace(turn, start=turn.start + last.start, stop=turn.stop + last.start) for turn in read
        ]
        return [*whole, *moved]

    def _steps(
        self, handle: Thread[Any], checkpoint: Checkpoint, key: str, indexes: Sequence[int]
    ) -> list[responses.StepJson | None]:
        """The step that added each of these messages; None if that is not known any more."""
        with self._histories.read(handle.id) as history:
            path = list(ancestry(history.graph.checkpoints(), checkpoint.id))[::-1]
        if not path:
            return [None] * len(indexes)
        found: list[responses.StepJson | None] = []
        for index in indexes:
            place = bisect_right(path, index, key=lambda one: self._count_at(handle, one, key))
            added = path[min(place, len(path) - 1)]
            found.append({"id": added.id, "step": added.step, "created_at": added.created_at.isoformat()})
        return found

    def _count_at(self, handle: Thread[Any], checkpoint: Checkpoint, key: str) -> int:
        with self._lock:
            count = self._counts.get((checkpoint.id, key))
        if count is None:
            try:
                count = _count(handle.outline(at=checkpoint, salvage=True), key)
            except BacktrailError:
                count = 0  # its state cannot be read: the steps around it tell
            with self._lock:
                self._counts.put((checkpoint.id, key), count)
        return count


def _count(outline: Outline, key: str) -> int:
    return next((part.count or 0 for part in outline.parts if part.name == key), 0)


def message_json(value: Any, limit: int) -> dict[str, Any]:
    """A message without its place."""
    parsed, facts = parse_message(value), facts_of(value)
    images = [{"media_type": image.media_type, "size": len(image.data), "url": image.url} for image in parsed.images]
    bare = msgspec.to_builtins(msgspec.structs.replace(parsed, images=()))
    shown: dict[str, Any] = truncate(bare, limit)
    return {**shown, "images": images, **msgspec.to_builtins(facts)}


def _seconds(first: responses.StepJson, last: responses.StepJson) -> float | None:
    from datetime import datetime

    began, ended = (datetime.fromisoformat(one["created_at"]) for one in (first, last))
    return (ended - began).total_seconds() if ended > began else None


def _totals(turns: list[ConversationTurn]) -> responses.TotalsJson:
    tokens = [turn.tokens for turn in turns if turn.tokens is not None]
    costs = [turn.cost for turn in turns if turn.cost is not None]
    by_model: dict[str, dict[str, int]] = {}
    for turn in turns:
        if turn.tokens is not None:
            sums = by_model.setdefault(turn.model or "", {"input": 0, "cached": 0, "output": 0})
            for name in sums:
                sums[name] += getattr(turn.tokens, name)
    return {
        "turns": len(turns),
        "failed": sum(turn.failed for turn in turns),
        "tokens": msgspec.to_builtins(sum(tokens[1:], tokens[0])) if tokens else None,
        "cost": sum(costs) if costs else None,
        "by_model": by_model,
    }
