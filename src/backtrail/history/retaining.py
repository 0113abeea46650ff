"""A thread's own retention policy, which its head carries."""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.engines.base import Head
from backtrail.history.handle import Handle, S
from backtrail.history.records import open_note, seal_note
from backtrail.history.retention import check_retention, pack_retention, unpack_retention
from backtrail.model import Retention


class Retaining(Handle[S]):
    """Gives a thread a policy of its own."""

    async def retention(self) -> Retention | None:
        """The thread's own policy, if it has one."""
        own = open_note(self.context.frames, await self.standing()).retention
        return unpack_retention(own, f"the head of thread {self.id!r}") if own else None

    async def retain(self, policy: Any) -> None:
        """Give the thread a policy of its own, which counts instead of the store's; None takes it away. It stays with
        the thread, and forks made from now on have it too."""
        packed = b"" if policy is None else pack_retention(check_retention(policy))

        async def attempt(head: Head) -> bool | None:
            note = msgspec.structs.replace(open_note(self.context.frames, head), retention=packed)
            bare = msgspec.structs.replace(head, version=head.version + 1, updated=head.updated + 1, note=b"")
            moved = msgspec.structs.replace(bare, note=seal_note(self.context.frames, bare, note))
            return await self.swap(head, moved) or None

        await self.insist("retain", attempt)
