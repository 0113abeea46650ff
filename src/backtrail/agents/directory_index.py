"""Which sessions worked in which directory: one thread of the store, so that no command has to look through them all.

The state of the thread has a key for each directory: its sessions by agent, the one that came last first. A session is
noted before anything of it is saved, so none that was captured is missing; one that was noted and never saved is passed
over. A store that has no such thread, because sessions came into it by other ways, gets it from the sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from backtrail.agents.events import AGENTS, Agent
from backtrail.errors import Conflict

if TYPE_CHECKING:
    from backtrail.store import Store

THREAD = "coding-agents/directories"
MOST = 16  #: sessions of an agent in a directory that are kept; one that comes back is noted again
_ATTEMPTS = 16  # if others note theirs at the same moment
_PAGE = 1000

Noted = dict[str, list[str]]  # the sessions of a directory, by agent


def note(store: Store, directory: str, session: str) -> None:
    """Note that a session, given by its thread, works in a directory."""
    thread = store.thread(THREAD)
    agent = session.partition("/")[0]
    for attempt in range(_ATTEMPTS):
        head = thread.head
        if head is None:
            changes: dict[str, Any] = _all_sessions(store)
            known = changes.get(directory, {})
        else:
            changes, known = {}, thread.pick([directory], at=head).get(directory, {})
        listed = known.get(agent, [])
        if head is not None and session in listed:
            return
        kept = [session, *(other for other in listed if other != session)][:MOST]
        try:
            thread.update({**changes, directory: {**known, agent: kept}}, expect=None if head is None else head.id)
        except Conflict:
            if attempt + 1 == _ATTEMPTS:
                raise
        else:
            return


def find(store: Store, directory: str, agent: Agent | None = None) -> list[str] | None:
    """The sessions that worked last in a directory, or in one above it; None if the store has no notes of that."""
    thread = store.thread(THREAD)
    head = thread.head
    if head is None:
        return None
    above = [directory, *map(str, PurePath(directory).parents)]
    found: Iterable[Noted] = thread.pick(above, at=head).values()
    return [session for noted in found for each in AGENTS if agent in (None, each) for session in noted.get(each, [])]


def _all_sessions(store: Store) -> dict[str, Noted]:
    """The notes that the sessions in the store would have made."""
    found: dict[str, dict[str, list[tuple[Any, str]]]] = {}
    for agent in AGENTS:
        after = None
        while page := store.threads(f"{agent}/", limit=_PAGE, after=after):
            after = page[-1].id
            for info in page:
                head = None if info.damage is not None else store.thread(info.id).head
                directory = None if head is None else head.custom.get("cwd")
                if isinstance(directory, str):
                    found.setdefault(directory, {}).setdefault(agent, []).append((info.updated_at, info.id))
    return {
        directory: {agent: [id for _, id in sorted(listed, reverse=True)[:MOST]] for agent, listed in noted.items()}
        for directory, noted in found.items()
    }
