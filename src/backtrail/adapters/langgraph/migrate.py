"""Copying LangGraph threads from another checkpointer into a backtrail store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.errors import InvalidInput
from backtrail.store import Store

Progress = Callable[[int, int], None]  # (checkpoints done, checkpoints in all)
DATABASE_KINDS = ("langgraph-sqlite", "langgraph-postgres")


def migrate_saver(source: BaseCheckpointSaver[Any], store: Store, progress: Progress | None = None) -> int:
    """Copy every checkpoint of a saver with its pending writes, and return their number.

    Ids, parents, metadata and branches stay the same. A checkpoint that the store has already is left as it is, so an
    interrupted copy can be repeated.
    """
    target = BacktrailSaver(store, serde=source.serde)
    addresses = sorted(_addresses(source.list(None)))
    for number, (id, thread_id, ns) in enumerate(addresses, 1):
        thread = {"thread_id": thread_id, "checkpoint_ns": ns}
        found = source.get_tuple({"configurable": {**thread, "checkpoint_id": id}})
        if found is None:
            continue  # deleted since the list was made
        _copy(found, thread, target)
        if progress is not None:
            progress(number, len(addresses))
    return len(addresses)


def migrate_database(kind: str, address: str, store: Store, progress: Progress | None = None) -> int:
    """`migrate_saver` for the database of a LangGraph saver: a file (`langgraph-sqlite`) or a URL
    (`langgraph-postgres`)."""
    try:
        if kind == "langgraph-sqlite":
            from langgraph.checkpoint.sqlite import SqliteSaver

            if not Path(address).is_file():
                raise InvalidInput(f"{address!r} is not a file")
            with SqliteSaver.from_conn_string(address) as saver:
                return migrate_saver(saver, store, progress)
        if kind == "langgraph-postgres":
            from langgraph.checkpoint.postgres import PostgresSaver

            with PostgresSaver.from_conn_string(address) as saver:
                return migrate_saver(saver, store, progress)
    except ImportError as error:
        package = kind.replace("langgraph-", "langgraph-checkpoint-")
        raise InvalidInput(f"reading a {kind} database needs its own package: pip install {package}") from error
    raise InvalidInput(f"{kind!r} is unknown: use one of {', '.join(DATABASE_KINDS)}")


def _addresses(found: Iterable[CheckpointTuple]) -> Iterable[tuple[str, str, str]]:
    """(checkpoint id, thread id, namespace) of each checkpoint. In the order of ids, parents precede their children."""
    for one in found:
        configurable = one.config["configurable"]
        yield configurable["checkpoint_id"], configurable["thread_id"], configurable.get("checkpoint_ns") or ""


def _copy(found: CheckpointTuple, thread: dict[str, Any], target: BacktrailSaver) -> None:
    parent_config: dict[str, Any] = found.parent_config["configurable"] if found.parent_config is not None else {}
    parent = {"checkpoint_id": parent_config["checkpoint_id"]} if parent_config.get("checkpoint_id") else {}
    versions = found.checkpoint["channel_versions"]
    saved = target.put({"configurable": {**thread, **parent}}, found.checkpoint, found.metadata, versions)
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in found.pending_writes or ():
        tasks.setdefault(task_id, []).append((channel, value))
    for number, (task_id, writes) in enumerate(tasks.items()):
        # A saver gives the tasks in order, but not their paths: made-up paths keep the order.
        target.put_writes(saved, writes, task_id, f"{number:06}")
