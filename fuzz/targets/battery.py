"""A small store with a bit of everything in it, and all that a reader may do with a store from a stranger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import backtrail
from backtrail.errors import BacktrailError
from backtrail.render.change_summary import summarize
from backtrail.render.graph import Graph, draw
from backtrail.render.json_records import checkpoint_json, thread_json
from backtrail.render.jsonable import json_bytes, to_json
from backtrail.render.message_parser import parse_message


def fill(store: backtrail.Store) -> None:
    """Threads with forks, rewinds, marks, blobs and pages; a session; a run."""
    thread: backtrail.Thread[Any] = store.thread("a")
    for n in range(6):
        thread.append("messages", [{"n": n, "text": f"text {n} " * 9}], label=f"l{n}" if n % 3 == 0 else None)
    thread.update({"paper": "paper " * 900, "wide": {f"k{n}": f"v{n} " * 9 for n in range(40)}, "set": {1, 2}})
    thread.annotate(2, tags=["x"], custom={"score": 1})
    fork = thread.fork("a-fork", at=3)
    fork.append("messages", [{"n": "fork"}])
    thread.rewind(4)
    thread.append("messages", [{"n": "rewound"}])
    session = store.session("s")
    session.add("user", "hello")
    session.append({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "x", "input": {}}]})
    session.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]})
    store.run("r", task="t").checkpoint(messages=[{"role": "user", "content": "go"}], input_tokens=3)


def read_all(store: backtrail.Store) -> None:
    """Read everything in every way. A refusal of one thing does not end it."""
    for info in _try(store.threads) or []:
        thread: backtrail.Thread[Any] = store.thread(info.id)
        _try(lambda info=info: json_bytes(thread_json(info)))
        history = _try(thread.history, all=True) or []
        _try(lambda history=history: draw(Graph(history, history[-1].id if history else None).page(0, 50), None))
        for checkpoint in history[:6] + history[-6:]:
            _read(thread, history[0], checkpoint)
        _try(thread.find, tag="x")
        _try(thread.forks)
        _try(store.export, info.id, format="markdown")
        _try(lambda info=info: store.session(info.id).messages(last=2))
    for ask in (store.sessions, store.runs, store.stats, store.verify):
        _try(ask)
    _try(store.prune, dry_run=True)


def _read(thread: backtrail.Thread[Any], first: backtrail.Checkpoint, checkpoint: backtrail.Checkpoint) -> None:
    _try(lambda: json_bytes(to_json(thread.load(checkpoint))))
    _try(lambda: json_bytes(checkpoint_json(checkpoint)))
    _try(lambda: list(map(parse_message, thread.tail("messages", 3, at=checkpoint))))
    _try(thread.outline, at=checkpoint)
    _try(thread.outline, ["wide"], at=checkpoint)
    _try(thread.diff, first, checkpoint)
    _try(summarize, thread, checkpoint)


def write_some(store: backtrail.Store) -> None:
    """Writes that must not be fooled by what is there; what was acknowledged must be readable."""
    message = {"role": "user", "content": "new"}
    for info in _try(store.threads) or []:
        thread: backtrail.Thread[Any] = store.thread(info.id)
        saved = _try(thread.append, "messages", [message])
        if saved is not None:
            tail = thread.tail("messages", 1, at=saved)
            assert tail == [message], f"acknowledged, but not there: {tail!r}"
    fresh: backtrail.Thread[Any] = store.thread("fresh")
    if _try(fresh.save, {"a": 1}) is not None:
        assert fresh.load() == {"a": 1}


def _try(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return call(*arguments, **options)
    except BacktrailError:
        return None
