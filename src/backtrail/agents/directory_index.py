"""Which sessions worked in which directory, so that no command has to look through all of them.

Each directory has a small thread of the store, with its sessions by agent, the one that came last first. A session is
noted before anything of it is saved, so none that was captured is missing; one that was noted and never saved is passed
over. A store whose sessions came into it by other ways gets all notes from them at the first one; a thread of its own
says that they are complete. Of each agent the last few are noted: if all of those were deleted, others may be left.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from backtrail.agents.events import AGENTS, Agent
from backtrail.errors import Conflict

if TYPE_CHECKING:
    from backtrail.store import Store
    from backtrail.thread import Thread

COMPLETE = "coding-agents/directories"  #: the thread that says so; those of the directories are below it
MOST = 16  #: sessions of an agent in a directory that are kept; one that comes back is noted again
_ATTEMPTS = 16  # if others note theirs at the same moment
_PAGE = 1000


def note(store: Store, directory: str, session: str) -> None:
    """Note that a session, given by its thread, works in a directory."""
    if _add(store, directory, session) and not store.thread(COMPLETE).exists():
        _note_all(store)
        store.thread(COMPLETE).update({})


class Noted(NamedTuple):
    """The sessions that worked last in a directory, or in one above it, by their threads."""

    sessions: list[str]
    all: bool  #: no other session ever worked there


def find(store: Store, directory: str, agent: Agent | None = None) -> Noted:
    """What is noted of a directory."""
    found: list[str] = []
    some_left_out = False
    for above in (directory, *map(str, PurePath(directory).parents)):
        thread = _thread(store, above)
        noted = thread.load() if thread.exists() else {}
        lists = [noted.get(each, []) for each in AGENTS if agent in (None, each)]
        found += [session for listed in lists for session in listed]
        some_left_out |= any(len(listed) >= MOST for listed in lists)
    return Noted(found, not some_left_out and store.thread(COMPLETE).exists())


def _thread(store: Store, directory: str) -> Thread[dict[str, Any]]:
    name = hashlib.blake2b(directory.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return store.thread(f"{COMPLETE}/{name}")


def _add(store: Store, directory: str, session: str) -> bool:
    """Put a session in the first place, unless it is listed; False if it is."""
    thread = _thread(store, directory)
    agent = session.partition("/")[0]
    for attempt in range(_ATTEMPTS):
        head = thread.head
        listed = [] if head is None else thread.pick([agent], at=head).get(agent, [])
        if session in listed:
            return False
        changes = {"directory": directory, agent: [session, *listed][:MOST]}
        try:
            thread.update(changes, expect=None if head is None else head.id)
        except Conflict:
            if attempt + 1 == _ATTEMPTS:
                raise
        else:
            break
    return True


def _note_all(store: Store) -> None:
    """Make the notes that the sessions in the store would have made."""
    for agent in AGENTS:
        found: dict[str, list[tuple[Any, str]]] = {}
        after = None
        while page := store.threads(f"{agent}/", limit=_PAGE, after=after):
            after = page[-1].id
            for info in page:
                head = None if info.damage is not None else store.thread(info.id).head
                directory = None if head is None else head.custom.get("cwd")
                if isinstance(directory, str):
                    found.setdefault(directory, []).append((info.updated_at, info.id))
        for directory, listed in found.items():
            for _, session in sorted(listed)[-MOST:]:
                _add(store, directory, session)
