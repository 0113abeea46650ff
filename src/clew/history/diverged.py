"""Keeping what lost: when both sides of a mirror were written to, the head that is not the head gets a name.

The mirror has brought its rows over already. If it is the same thread, its last checkpoint is labelled and stays
reachable beside the trail; if another thread of the same name was made on the other side, it becomes a thread of its
own.
"""

from __future__ import annotations

import msgspec

from clew.engines.base import Commit, Swap
from clew.engines.namespace import NamespaceEngine
from clew.errors import CheckpointNotFound, Conflict, ThreadNotFound
from clew.history.core import Core
from clew.history.moving import Moving
from clew.history.names import check_name
from clew.history.records import open_note, seal_note, uuid_text
from clew.replicate.reconcile import Diverged

LABEL = "diverged"


async def keep(core: Core, found: Diverged) -> None:
    """Label or name the head that lost. What belongs to another namespace is left to the stores of that one."""
    assert isinstance(core.engine, NamespaceEngine)
    head = core.engine.mine(found.head)
    if head is None:
        return
    note = open_note(core.frames, head)
    if found.same_life:
        thread: Moving[object] = Moving(core, head.thread)
        try:
            await thread.annotate(uuid_text(note.checkpoint), label=f"{LABEL} in generation {core.engine.generation}")
        except (CheckpointNotFound, ThreadNotFound):
            return  # it was deleted meanwhile, which is what its owner wanted
        return
    number = 1
    while True:
        name = check_name(f"{head.thread}#{LABEL}-{number}", "thread id")
        bare = msgspec.structs.replace(head, thread=name, version=1, note=b"")
        named = msgspec.structs.replace(
            bare, note=seal_note(core.frames, bare, msgspec.structs.replace(note, pinned=True, moves=()))
        )
        existing = await core.engine.head(name)
        if existing is not None and existing.owner == head.owner:
            return
        try:
            await core.engine.commit(Commit(head.lineage, (Swap(name, None, named),)))
        except Conflict:
            number += 1
            continue
        return
