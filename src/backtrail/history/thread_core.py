"""A thread: one conversation or run, with a head and a history. This class lists all its operations.

A method is an `async def` on a `ThreadHandle` in the module that it belongs to, and one line here. Those that are
`observed` have a span and a duration of that name, if the program collects them.
"""

from __future__ import annotations

from backtrail.history import compare, moves, reads, related_threads
from backtrail.history import outline as outlines
from backtrail.history import retention as policies
from backtrail.history import save as saves
from backtrail.history.observation import observed
from backtrail.history.thread_handle import S, ThreadHandle


class ThreadCore(ThreadHandle[S]):
    """One thread of a store."""

    save = observed("save", saves.save)
    append = observed("save", saves.append)
    update = observed("save", saves.update)

    load = observed("load", reads.load)
    pick = observed("load", reads.pick)
    tail = observed("load", reads.tail)
    head = reads.head
    step = reads.step
    exists = reads.exists
    get = reads.get
    history = observed("history", reads.history)
    find = observed("find", reads.find)
    diff = observed("diff", compare.diff)
    common_ancestor = compare.common_ancestor
    outline = outlines.outline
    forks = related_threads.forks

    fork = observed("fork", moves.fork)
    rewind = observed("rewind", moves.rewind)
    undo = observed("undo", moves.undo)
    redo = observed("redo", moves.redo)
    annotate = observed("annotate", moves.annotate)
    delete = observed("delete", moves.delete)

    retention = policies.own_retention
    retain = policies.retain

    # for views
    save_plan = observed("save", saves.save_plan)
    edit = observed("save", saves.edit)
    rewind_from = observed("rewind", moves.rewind_from)
    read_root = reads.read_root
    read_end = reads.read_end
    remember_end = reads.remember_end
