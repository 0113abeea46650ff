"""The list of threads for the inspector: filtered, and with a title and the last message of each.

Filters that an index does not answer are applied while the list is read; a request reads a bounded number of threads,
for a short time, and answers with what it found and where to go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from backtrail import BacktrailError, Checkpoint, InvalidInput, Store, ThreadInfo
from backtrail.lru import LRU
from backtrail.render.change_summary import message_preview
from backtrail.render.json_records import thread_json
from backtrail.render.jsonable import short_text
from backtrail.render.message_parser import conversation_key, is_message, parse_message
from backtrail.server import requests, responses

_PAGE = 500
_MOST_READ = 20_000  # threads that one request looks at by name, kind and date
_MOST_OPENED = 1_000  # threads of which it reads the head
_SECONDS = 0.25  # after which it answers: what was found is shown while the next request looks further
_EVERY = 100  # threads between two looks at the clock
_CACHED = 20_000
_TITLE, _LAST = 120, 100  # characters
_OPENING = 6  # messages among which the first of a user is looked for


class Description(msgspec.Struct, frozen=True):
    """What the row of a thread shows besides its name."""

    title: str = ""
    last: str = ""
    label: str | None = None
    tags: tuple[str, ...] = ()
    failed: bool = False
    status: str | None = None


class ThreadListing:
    """Pages of the list of threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # around the cache: requests run in several threads
        self._described: LRU[tuple[str, str, str], Description] = LRU(_CACHED)

    def page(self, request: requests.ThreadsRequest) -> responses.ThreadsResponse:
        """Threads, newest first; `next` is the `after` of the next page."""
        waiting = {one.run_id for one in self._store.pending(request.prefix)} if request.waiting else None
        opens = bool(request.label or request.tag or request.failed)
        since, until = parse_moment(request.since, "since"), parse_moment(request.until, "until")
        found: list[ThreadInfo] = []
        last: str | None = None
        read = opened = 0
        complete = True
        deadline = time.monotonic() + _SECONDS
        for info in self._newest(request):
            late = read % _EVERY == _EVERY - 1 and time.monotonic() > deadline
            if late or len(found) == request.limit or read == _MOST_READ or opened == _MOST_OPENED:
                complete = False
                break
            read += 1
            if since is not None and info.updated_at < since:
                break  # all others are older
            last = info.id
            if (until is not None and info.updated_at > until) or not _named(info, request):
                continue
            if waiting is not None and info.id not in waiting:
                continue
            opened += opens
            if not opens or self._has(info, request):
                found.append(info)
        shown = [self._row(info, request.describe) for info in found]
        return {"threads": shown, "next": None if complete else last}

    def _newest(self, request: requests.ThreadsRequest) -> Iterator[ThreadInfo]:
        """Threads from `after` on, in pages that grow: most requests need only the first."""
        after, size = request.after, request.limit + 1
        while True:
            page = self._store.threads(request.prefix, limit=size, after=after, kind=request.kind, newest_first=True)
            yield from page
            if len(page) < size:
                return
            after, size = page[-1].id, _PAGE

    def _has(self, info: ThreadInfo, request: requests.ThreadsRequest) -> bool:
        described = self.describe(info)
        return (
            (not request.label or described.label == request.label)
            and (not request.tag or request.tag in described.tags)
            and (not request.failed or described.failed)
        )

    def _row(self, info: ThreadInfo, describe: bool) -> responses.ThreadRowJson:
        found = self.describe(info) if describe else Description()
        return {
            **thread_json(info),
            "title": found.title,
            "last": found.last,
            "label": found.label,
            "failed": found.failed,
            "status": found.status,
        }

    def describe(self, info: ThreadInfo) -> Description:
        """The title of a thread, its last message, and what its head is marked with."""
        key = (info.id, info.head, info.updated_at.isoformat())
        with self._lock:
            found = self._described.get(key)
        if found is None:
            try:
                found = self._read(info)
            except BacktrailError:
                found = Description()  # damaged, or deleted meanwhile: the row says so, or goes away
            with self._lock:
                self._described.put(key, found)
        return found

    def _read(self, info: ThreadInfo) -> Description:
        thread = self._store.thread(info.id)
        head: Checkpoint = thread.get(info.head, salvage=True)
        outline = thread.outline(at=head, salvage=True)
        about = {part.name: part.value for part in outline.parts if part.known} if info.kind == "run" else {}
        status = about["status"] if isinstance(about.get("status"), str) else None
        task = about["task"] if isinstance(about.get("task"), str) else ""
        plain = Description(short_text(task, _TITLE), "", head.label, head.tags, status == "failed", status)
        key = conversation_key(outline)
        count = next((part.count or 0 for part in outline.parts if part.name == key), 0) if key is not None else 0
        if key is None or not count:
            return plain
        first = [part.value for part in thread.outline([key], at=head, start=0, stop=_OPENING, salvage=True).parts]
        last = [part.value for part in thread.outline([key], at=head, start=count - 1, stop=count, salvage=True).parts]
        if not all(map(is_message, first[:1] + last)):
            return plain
        newest = parse_message(last[0]) if last else None
        return msgspec.structs.replace(
            plain,
            title=plain.title or _title(first),
            last=short_text(f"{newest.role}: {message_preview(newest)}", _LAST) if newest is not None else "",
            failed=plain.failed or (newest is not None and any(result.failed for result in newest.results)),
        )


def _title(messages: list[Any]) -> str:
    said = [message.text for message in map(parse_message, messages) if message.role == "user" and message.text]
    return short_text(said[0], _TITLE) if said else ""


def _named(info: ThreadInfo, request: requests.ThreadsRequest) -> bool:
    if request.damaged and not info.damage:
        return False
    return request.search.casefold() in info.id.casefold()


def parse_moment(text: str | None, name: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{name}={text!r} is no date: write 2026-11-15 or 2026-11-15T21:00") from error
    if name == "until" and len(text) <= len("2026-11-15"):
        found = found.replace(hour=23, minute=59, second=59, microsecond=999999)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
