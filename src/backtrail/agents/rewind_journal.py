"""The journal of a rewind: which session of an agent was being made for it, in case the process dies.

Files and store are settled by the workspace's own journal. What that does not know is the agent's new session: it is
announced here before, or as soon as, it is there, and forgotten when the rewind is done. Whoever goes back next in the
same directory finds the announcement. If the checkpoint of the rewind was saved, the rewind was finished; if not, the
new session is taken away again.

There is one small directory for each project, under that of the user's store; the lock on it is the right to go back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from backtrail import owned_files
from backtrail.agents.conversations import Fork
from backtrail.agents.user_store import data_directory
from backtrail.errors import DECODE_ERRORS, Corrupt
from backtrail.workspace.lock import acquire

PATIENCE = 30.0  #: seconds to wait for another process that goes back in the same directory


class PendingRewind(msgspec.Struct, frozen=True):
    """A rewind that was begun."""

    made: Fork  #: the new session
    thread: str  #: the thread in which the rewind's checkpoint is saved
    checkpoint: str  #: the id of that checkpoint


class RewindJournal:
    """The journal of one directory; its holder has the lock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, pending: PendingRewind) -> None:
        """Announce a rewind; it is on disk when this returns."""
        owned_files.replace_atomically(self._path, [msgspec.json.encode(pending)])

    def read(self) -> PendingRewind | None:
        """The rewind that was begun and not forgotten."""
        try:
            return msgspec.json.decode(owned_files.read_bytes(self._path), type=PendingRewind)
        except FileNotFoundError:
            return None
        except DECODE_ERRORS as error:
            raise Corrupt(
                str(self._path), f"{error}: delete this file; at worst, a session that nobody uses remains"
            ) from error

    def clear(self) -> None:
        """Forget the rewind: it is done, or taken back."""
        self._path.unlink(missing_ok=True)
        owned_files.sync_directory(self._path.parent)


@contextmanager
def rewind_journal(directory: str) -> Iterator[RewindJournal]:
    """Hold the right to go back in a directory; `LockTimeout` if another process has it for too long."""
    folder = data_directory() / "rewinds" / hashlib.blake2b(os.fsencode(directory), digest_size=16).hexdigest()
    owned_files.make_directories(folder)
    handle = acquire(os.fsencode(folder), PATIENCE)
    try:
        yield RewindJournal(folder / "pending.json")
    finally:
        os.close(handle)
