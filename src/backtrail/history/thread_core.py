"""A thread: one conversation or run, with a head and a history. This class lists all its operations.

A method is an `async def` on a `ThreadHandle` in the module that it belongs to, and one line here.
"""

from __future__ import annotations

from backtrail.history import compare, moves, reads, related_threads
from backtrail.history import outline as outlines
from backtrail.history import retention as policies
from backtrail.history import save as saves
from backtrail.history.thread_handle import S, ThreadHandle


class ThreadCore(ThreadHandle[S]):
    """One thread of a store."""

    save = saves.save
    append = saves.append
    update = saves.update

    load = reads.load
    pick = reads.pick
    tail = reads.tail
    head = reads.head
    step = reads.step
    exists = reads.exists
    get = reads.get
    history = reads.history
    find = reads.find
    diff = compare.diff
    common_ancestor = compare.common_ancestor
    outline = outlines.outline
    forks = related_threads.forks

    fork = moves.fork
    rewind = moves.rewind
    undo = moves.undo
    redo = moves.redo
    annotate = moves.annotate
    delete = moves.delete

    retention = policies.own_retention
    retain = policies.retain

    # for views
    save_plan = saves.save_plan
    edit = saves.edit
    rewind_from = moves.rewind_from
    read_root = reads.read_root
    read_end = reads.read_end
    remember_end = reads.remember_end
