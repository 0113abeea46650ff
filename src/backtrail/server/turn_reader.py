"""The turns of coding agents' sessions for the inspector.

A turn that has ended and is followed by another does not change any more, so it is read once.
"""

from __future__ import annotations

import threading
from typing import Any

from backtrail import NotFound, Store, Thread, transcript_lines
from backtrail.lru import LRU
from backtrail.render.jsonable import short_text, truncate
from backtrail.render.session_turns import Turn, turns_in
from backtrail.render.turn_details import TurnJson, missing_files, read_details, tools_json, turn_files, turn_json
from backtrail.server import requests, responses
from backtrail.server.file_changes import file_changes_json
from backtrail.server.history_cache import HistoryCache

_CACHED = 2_000  # turns
_SHOWN_TEXT = 20_000  # characters of a text that are sent, unless `whole` was requested
_SHOWN_REPLY = 2_000  # in a list
_SHOWN_TOOLS, _SHOWN_FILES = 500, 200


class TurnReader:
    """Reads turns, for several threads at once."""

    def __init__(self, store: Store, histories: HistoryCache) -> None:
        self._store = store
        self._histories = histories
        self._lock = threading.Lock()  # around the cache
        self._read: LRU[tuple[str, str], TurnJson] = LRU(_CACHED)

    def page(self, request: requests.TurnsRequest) -> responses.TurnsResponse:
        """Some turns of a session, newest first."""
        handle: Thread[Any] = self._store.thread(request.thread)
        agent, turns = self._turns(request.thread)
        stop = max(0, len(turns) - request.start)
        places = range(stop - 1, max(-1, stop - 1 - request.limit), -1)
        shown = [self._turn(handle, turns, place) for place in places]
        return {"agent": agent, "total": len(turns), "start": request.start, "turns": shown}

    def one(self, request: requests.TurnRequest) -> responses.TurnResponse:
        """One turn with everything that it did."""
        handle: Thread[Any] = self._store.thread(request.thread)
        _, turns = self._turns(request.thread)
        place = next((n for n, turn in enumerate(turns) if turn.number == request.number), None)
        if place is None:
            raise NotFound(f"thread {request.thread!r} has no turn {request.number}")
        turn, read = turns[place], read_details(handle, turns, place)
        files = turn_files(handle, turn)
        limit = 10**9 if request.whole else _SHOWN_TEXT
        return {
            "turn": self._turn(handle, turns, place),
            "prompt": truncate(read.prompt or turn.prompt, limit),
            "reply": truncate(read.reply, limit),
            "tools": [truncate(tool, limit) for tool in tools_json(read)[:_SHOWN_TOOLS]],
            "tools_total": len(read.tools),
            "files": None if files is None else file_changes_json(files[:_SHOWN_FILES]),
            "files_total": len(files or ()),
            "files_missing": missing_files(turn),
        }

    def _turns(self, thread: str) -> tuple[str | None, list[Turn]]:
        with self._histories.read(thread) as history:
            trail = list(history.graph.trail())
        agent = trail[-1].custom.get("agent") if trail else None
        known = agent if agent in transcript_lines.AGENTS else None
        return known, turns_in(trail) if known is not None else []

    def _turn(self, handle: Thread[Any], turns: list[Turn], place: int) -> TurnJson:
        turn = turns[place]
        after = turns[place + 1].before if place + 1 < len(turns) else None
        key = None if turn.after is None or after is None else (turn.after.id, after.id)
        with self._lock:
            found = None if key is None else self._read.get(key)
        if found is None:
            found = turn_json(handle, turns, place)
            found["reply"] = short_text(found["reply"], _SHOWN_REPLY)
            if key is not None:
                with self._lock:
                    self._read.put(key, found)
        return found
