"""Finds messages and checkpoints, in one thread or in all, and sends each match as soon as it is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backtrail import BacktrailError, Checkpoint, InvalidInput, Store, Thread
from backtrail.render.text_search import Wanted, matching_messages
from backtrail.server import requests
from backtrail.server.thread_listing import parse_moment

_PAGE = 200


def find(store: Store, request: requests.FindRequest) -> Iterator[dict[str, Any]]:
    """One dict per match, and at the end one with `done` and the number of threads that were read. An error ends it, as
    a dict with `error`: by then a part was sent."""
    wanted = Wanted(request.text, request.role, request.tool, request.failed)
    marked = bool(request.label or request.tag or ((request.since or request.until) and not wanted))
    if not wanted and not marked:
        raise InvalidInput("say what to find: text, role, tool, failed, label, tag, since or until")
    return _lines(store, request, wanted, marked)


def _lines(store: Store, request: requests.FindRequest, wanted: Wanted, marked: bool) -> Iterator[dict[str, Any]]:
    sent = read = 0
    try:
        for thread in _threads(store, request):
            read += 1
            for line in _marked(thread, request) if marked else _messages(thread, wanted):
                yield line
                sent += 1
                if sent == request.limit:
                    yield {"done": True, "threads": read}
                    return
    except BacktrailError as error:
        yield {"error": str(error)}
        return
    yield {"done": True, "threads": read}


def _threads(store: Store, request: requests.FindRequest) -> Iterator[Thread[Any]]:
    if request.thread is not None:
        yield store.thread(request.thread)
        return
    after: str | None = None
    while page := store.threads(request.prefix, limit=_PAGE, after=after, kind=request.kind, newest_first=True):
        names = [info for info in page if request.search.casefold() in info.id.casefold()]
        yield from (store.thread(info.id) for info in names)
        after = page[-1].id


def _messages(thread: Thread[Any], wanted: Wanted) -> Iterator[dict[str, Any]]:
    try:
        head = thread.get("@", salvage=True)
        for found in matching_messages(thread, head, wanted):
            yield _line(thread, head) | {
                "index": found.index,
                "number": found.number,
                "role": found.role,
                "before": found.before,
                "match": found.match,
                "after": found.after,
            }
    except BacktrailError:
        return  # deleted meanwhile, or so damaged that the list marks it: the others are read


def _marked(thread: Thread[Any], request: requests.FindRequest) -> Iterator[dict[str, Any]]:
    since, until = parse_moment(request.since, "since"), parse_moment(request.until, "until")
    if request.label or request.tag:
        found = thread.find(tag=request.tag or None, label=request.label or None)
    else:
        found = thread.history(all=True, salvage=True)
    for checkpoint in reversed(found):
        if (since is not None and checkpoint.created_at < since) or (
            until is not None and checkpoint.created_at > until
        ):
            continue
        words = " ".join([checkpoint.label or "", *checkpoint.tags, checkpoint.created_at.isoformat(" ", "seconds")])
        nothing = {"index": None, "number": None, "role": None}
        yield _line(thread, checkpoint) | nothing | {"before": words.strip(), "match": "", "after": ""}


def _line(thread: Thread[Any], checkpoint: Checkpoint) -> dict[str, Any]:
    return {"thread": thread.id, "at": checkpoint.id, "step": checkpoint.step}
