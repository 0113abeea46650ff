"""Copying LangGraph threads from another checkpointer into a backtrail store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointMetadata
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint

from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.adapters.langgraph.ids import GraphThread
from backtrail.adapters.langgraph.saver_databases import (
    Address,
    PostgresDatabase,
    SaverDatabase,
    SqliteDatabase,
    StoredCheckpoint,
    StoredWrite,
)
from backtrail.adapters.langgraph.strict_values import StrictValues
from backtrail.errors import BacktrailError, InvalidInput, Unavailable
from backtrail.model import counted
from backtrail.store import Store

__all__ = ["DATABASE_KINDS", "Migration", "SkippedCheckpoint", "migrate_database", "migrate_saver"]

Progress = Callable[[int, int], None]  # (checkpoints done, checkpoints in all)
DATABASE_KINDS = ("langgraph-sqlite", "langgraph-postgres")


class SkippedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint that could not be copied."""

    thread_id: str
    checkpoint_id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.thread_id}: {self.checkpoint_id}: {self.reason}"


class Migration(msgspec.Struct, frozen=True):
    """The outcome of a migration. `str()` of it is for people."""

    checkpoints: int  #: that were copied
    unchanged: int = 0  #: checkpoints that the store had already
    skipped: tuple[SkippedCheckpoint, ...] = ()
    made_plain: tuple[str, ...] = ()  #: classes whose objects were copied as plain data

    def __str__(self) -> str:
        imported = counted(self.checkpoints, "checkpoint")
        lines = [f"{imported} imported, {self.unchanged} unchanged, {len(self.skipped)} skipped"]
        lines += [f"  skipped: {one}" for one in self.skipped]
        lines += [
            f"  copied as plain data: {name} (allow it with migrate_database(types=…))" for name in self.made_plain
        ]
        return "\n".join(lines)


def migrate_database(
    kind: str, address: str, store: Store, progress: Progress | None = None, *, types: Iterable[type] = ()
) -> Migration:
    """Copy the database of a LangGraph saver: a file (`langgraph-sqlite`) or a URL (`langgraph-postgres`).

    The database is only read, and nothing that it holds is run: harmless classes (messages, dates, sets, …) and those
    in `types` are rebuilt, and an object of any other class is copied as plain data. Ids, parents, metadata, branches
    and pending writes stay the same. A checkpoint that the store has already is left as it is, so an interrupted copy
    can be repeated. A checkpoint that cannot be read is skipped, and named in the result.
    """
    if kind not in DATABASE_KINDS:
        raise InvalidInput(f"{kind!r} is unknown: use one of {', '.join(DATABASE_KINDS)}")
    values = StrictValues(types)
    opened = SqliteDatabase.open if kind == "langgraph-sqlite" else PostgresDatabase.open
    with opened(address, values) as database:
        migration = _copy_all(database, BacktrailSaver(store), progress)
    return msgspec.structs.replace(migration, made_plain=tuple(sorted(values.made_plain)))


def migrate_saver(source: BaseCheckpointSaver[Any], store: Store, progress: Progress | None = None) -> Migration:
    """Copy every checkpoint of a saver with its pending writes, as `migrate_database` does.

    The saver reads its values with its own serializer, by the rules of that: use it for a saver whose contents you
    trust. The copy is written with the same serializer.
    """
    return _copy_all(_SaverSource(source), BacktrailSaver(store, serde=source.serde), progress)


class _SaverSource:
    """A saver seen as a database."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver

    def addresses(self) -> list[Address]:
        found = [one.config["configurable"] for one in self._saver.list(None)]
        return [Address(one["checkpoint_id"], one["thread_id"], one.get("checkpoint_ns") or "") for one in found]

    def read(self, address: Address) -> StoredCheckpoint | None:
        found = self._saver.get_tuple(GraphThread(address.thread_id, address.ns).config(address.id))
        if found is None:
            return None
        parent = found.parent_config["configurable"].get("checkpoint_id") if found.parent_config is not None else None
        # A saver gives the tasks in order, but not their paths: made-up paths keep the order.
        tasks = {
            task: f"{number:06}" for number, task in enumerate(dict.fromkeys(w[0] for w in found.pending_writes or ()))
        }
        writes = [
            StoredWrite(tasks[w[0]], w[0], index, w[1], w[2]) for index, w in enumerate(found.pending_writes or ())
        ]
        return StoredCheckpoint(parent, dict(found.checkpoint), dict(found.metadata), writes)


def _copy_all(source: SaverDatabase, target: BacktrailSaver, progress: Progress | None) -> Migration:
    skipped: list[SkippedCheckpoint] = []
    addresses: list[Address] = []
    for address in source.addresses():
        if all(type(part) is str for part in address):
            addresses.append(address)
        else:
            skipped.append(SkippedCheckpoint(str(address.thread_id), str(address.id), "its ids are not text"))
    addresses.sort()
    copied = unchanged = 0
    for number, address in enumerate(addresses, 1):
        try:
            found = source.read(address)
            if found is not None:  # else it was deleted since the list was made
                new = _copy(address, found, target)
                copied, unchanged = copied + new, unchanged + (not new)
        except Unavailable:
            raise
        except BacktrailError as error:
            skipped.append(SkippedCheckpoint(address.thread_id, address.id, str(error)))
        if progress is not None:
            progress(number, len(addresses))
    return Migration(copied, unchanged, tuple(skipped))


def _copy(address: Address, found: StoredCheckpoint, target: BacktrailSaver) -> bool:
    """Copy a checkpoint, and the pending writes that it lacks; False if the store had the checkpoint already."""
    thread = {"thread_id": address.thread_id, "checkpoint_ns": address.ns}
    saved: RunnableConfig = {"configurable": {**thread, "checkpoint_id": address.id}}
    new = target.get_tuple(saved) is None
    if new:
        parent = {"checkpoint_id": found.parent} if found.parent is not None else {}
        checkpoint = cast("GraphCheckpoint", {**found.checkpoint, "id": address.id})
        metadata = cast("CheckpointMetadata", found.metadata)
        target.put({"configurable": {**thread, **parent}}, checkpoint, metadata, checkpoint["channel_versions"])
    tasks: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for write in found.writes:
        tasks.setdefault((write.task_id, write.task_path), []).append((write.channel, write.value))
    for (task_id, task_path), writes in tasks.items():
        target.put_writes(saved, writes, task_id, task_path)
    return new
