"""Bringing LangGraph threads over from another checkpointer: from its files or server, or from any saver at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.errors import InvalidInput
from backtrail.store import Store

Progress = Callable[[int, int], None]
SOURCES = ("langgraph-sqlite", "langgraph-postgres")


def bring(source: BaseCheckpointSaver[Any], store: Store, progress: Progress | None = None) -> int:
    """Copy every checkpoint of `source`, with its pending writes; how many there are. Ids, parents, metadata and
    branches stay what they were. What is there already stays, so a copy that was interrupted can be made again."""
    target = BacktrailSaver(store, serde=source.serde)
    places = sorted(_places(source.list(None)))
    for number, (_, thread_id, ns, id) in enumerate(places, 1):
        place = {"thread_id": thread_id, "checkpoint_ns": ns}
        found = source.get_tuple({"configurable": {**place, "checkpoint_id": id}})
        if found is None:
            continue  # deleted since the list was made
        _copy(found, place, target)
        if progress is not None:
            progress(number, len(places))
    return len(places)


def bring_from(kind: str, address: str, store: Store, progress: Progress | None = None) -> int:
    """`bring` from the database of a stock saver: a file for `langgraph-sqlite`, a URL for `langgraph-postgres`."""
    try:
        if kind == "langgraph-sqlite":
            from langgraph.checkpoint.sqlite import SqliteSaver

            if not Path(address).is_file():
                raise InvalidInput(f"{address!r} is not a file")
            with SqliteSaver.from_conn_string(address) as saver:
                return bring(saver, store, progress)
        if kind == "langgraph-postgres":
            from langgraph.checkpoint.postgres import PostgresSaver

            with PostgresSaver.from_conn_string(address) as saver:
                return bring(saver, store, progress)
    except ImportError as error:
        package = kind.replace("langgraph-", "langgraph-checkpoint-")
        raise InvalidInput(f"reading a {kind} database needs its own package: pip install {package}") from error
    raise InvalidInput(f"{kind!r} is unknown: use one of {', '.join(SOURCES)}")


def _places(found: Iterable[CheckpointTuple]) -> Iterable[tuple[str, str, str, str]]:
    """Where each checkpoint is, to be copied in the order of ids: parents come before their children."""
    for one in found:
        conf = one.config["configurable"]
        yield conf["checkpoint_id"], conf["thread_id"], conf.get("checkpoint_ns") or "", conf["checkpoint_id"]


def _copy(found: CheckpointTuple, place: dict[str, Any], target: BacktrailSaver) -> None:
    parent: dict[str, Any] = found.parent_config["configurable"] if found.parent_config is not None else {}
    before = {"checkpoint_id": parent["checkpoint_id"]} if parent.get("checkpoint_id") else {}
    versions = found.checkpoint["channel_versions"]
    saved = target.put({"configurable": {**place, **before}}, found.checkpoint, found.metadata, versions)
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in found.pending_writes or ():
        tasks.setdefault(task, []).append((channel, value))
    for number, (task, writes) in enumerate(tasks.items()):
        target.put_writes(saved, writes, task, f"{number:06}")  # a saver tells the order of tasks, not their paths
