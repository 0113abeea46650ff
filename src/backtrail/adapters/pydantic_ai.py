"""pydantic-ai: `BacktrailConversationStore` is its `ConversationStore`.

A conversation is one backtrail thread: its messages as a list, each with the id of its entry, and the record beside
them. Saving appends what is new, in one checkpoint that stands on the revision it was made for. A history that was
rewritten, or left by `branch`, shares what it has in common with the new one and stays in the thread's earlier
checkpoints, where the record says which; a fork is a backtrail fork, one record for any length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from backtrail.adapters.ids import join, split
from backtrail.adapters.optional_import import needed
from backtrail.adapters.sync_bridge import SyncBridge, settle
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, NotFound
from backtrail.model import Checkpoint
from backtrail.store import Store

with needed("pydantic-ai"):
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessagesTypeAdapter

_ROOM = "pydantic-ai"
_MESSAGES, _RECORD, _TIPS = "messages", "record", "tips"
_REMEMBERED = 4096  # entries whose conversation is known
_RECORDS: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)

_Item = dict[str, Any]


class BacktrailConversationStore(ConversationStore):
    """Conversations on a backtrail store.

        conversation = await store.load("c-42") or Conversation(conversation_id="c-42")
        result = await agent.run("Hello", conversation=conversation)
        await store.save(result)

    Deleting a conversation frees its entries as soon as no fork shares them.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self.store = store
        self._colour = SyncBridge(store)
        self._where: OrderedDict[str, str] = OrderedDict()  # entry -> conversation; saves a search, nothing else

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation."""
        found = await self._colour.run(self._record(conversation_id))
        return found[1] if found is not None else None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """The records, newest first."""
        return await self._colour.run(self._records(scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one checkpoint, if the stored revision is the expected one."""
        await self._colour.run(self._write(record, list(new_entries), expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation, if its revision is the expected one."""
        await self._colour.run(self._delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """One entry; `LookupError` if no conversation has it."""
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to `head_id`, or the last `limit` of them, in a few reads."""
        return [] if head_id is None else await self._colour.run(self._history(head_id, limit))

    # -- records ------------------------------------------------------------------------------------------------------

    def thread(self, conversation_id: str) -> Any:
        """The backtrail thread of a conversation, with its history, labels and diffs."""
        return self.store.thread(join(_ROOM, conversation_id))

    async def _record(self, conversation_id: str) -> tuple[Checkpoint, ConversationRecord, dict[str, str]] | None:
        """(head, record, where the branches that were left are) of a conversation."""
        thread = self.thread(conversation_id)
        head = await settle(thread.head)
        if head is None:
            return None
        picked = await settle(thread.pick([_RECORD, _TIPS], at=head.id))
        record = _RECORDS.validate_json(msgspec.json.encode(picked[_RECORD]))
        if record.conversation_id != conversation_id:
            return None  # a fork that was not finished: its record is still the other conversation's
        self._note(conversation_id, [record.head_id, *record.branches])
        return head, record, picked.get(_TIPS, {})

    async def _records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        infos: Any = await settle(self.store.threads(prefix=f"{_ROOM}/"))
        found = [await self._record(split(info.id)[1]) for info in infos]
        records = [one[1] for one in found if one is not None and (scope is None or one[1].scope == scope)]
        records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    async def _write(
        self, record: ConversationRecord, new: list[ConversationEntry], expected_revision: str | None
    ) -> None:
        name = record.conversation_id
        stored = await self._record(name)
        if (stored[1].revision if stored is not None else None) != expected_revision:
            raise ConversationConflict(name)
        items = [_item(entry) for entry in new]
        after = new[0].parent_id if new else record.head_id
        try:
            if stored is not None:
                await self._replace(stored, record, items, after)
            else:
                await self._begin(record, items, after)
        except (Conflict, LookupError) as error:
            raise ConversationConflict(name) from error
        self._note(name, [record.head_id, *record.branches])

    async def _replace(
        self,
        stored: tuple[Checkpoint, ConversationRecord, dict[str, str]],
        record: ConversationRecord,
        items: list[_Item],
        after: str | None,
    ) -> None:
        head, old, tips = stored
        changes: dict[str, Any] = {_RECORD: _RECORDS.dump_python(record, mode="json")}
        thread = self.thread(record.conversation_id)
        if after == old.head_id:
            await settle(thread.update(changes, append=(_MESSAGES, items), expect=head.id))
            return
        if old.head_id is not None:
            changes[_TIPS] = {**tips, old.head_id: head.id}
        kept = await self._items(record.conversation_id, after) if after is not None else []
        await settle(thread.update({**changes, _MESSAGES: kept + items}, expect=head.id))

    async def _begin(self, record: ConversationRecord, items: list[_Item], after: str | None) -> None:
        """A new conversation: from nothing, or as a fork of the one that has the entry `after`."""
        changes: dict[str, Any] = {_RECORD: _RECORDS.dump_python(record, mode="json")}
        thread = self.thread(record.conversation_id)
        if after is None:
            await settle(thread.save({_MESSAGES: items, **changes}, expect=None))
            return
        source = await self._conversation_of(after)
        kept = await self._items(source, after)
        if not await settle(thread.exists()):
            await settle(self.thread(source).fork(thread.id))
        head = await settle(thread.head)
        await settle(thread.update({**changes, _MESSAGES: kept + items, _TIPS: {}}, expect=head.id))

    async def _delete(self, conversation_id: str, expected_revision: str) -> None:
        stored = await self._record(conversation_id)
        if stored is None or stored[1].revision != expected_revision:
            raise ConversationConflict(conversation_id)
        try:
            await settle(self.thread(conversation_id).delete())
        except NotFound as error:
            raise ConversationConflict(conversation_id) from error

    # -- entries ------------------------------------------------------------------------------------------------------

    async def _history(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        conversation = await self._conversation_of(head_id)
        if limit is not None:
            found = await settle(self.thread(conversation).tail(_MESSAGES, max(limit, 1)))
            if found and found[-1]["id"] == head_id:
                return _entries(found) if limit else []
        items = await self._items(conversation, head_id)
        return _entries(items if limit is None else items[max(0, len(items) - limit) :])

    async def _items(self, conversation: str, upto: str) -> list[_Item]:
        """The items up to an entry, in the conversation's history or in a branch it left."""
        thread = self.thread(conversation)
        stored = await self._record(conversation)
        places = [None, *reversed((stored[2] if stored is not None else {}).values())]
        for at in places:
            items: list[_Item] = (await settle(thread.pick([_MESSAGES], at=at))).get(_MESSAGES, [])
            for index, item in enumerate(items):
                if item["id"] == upto:
                    return items[: index + 1]
        raise LookupError(f"no conversation has the entry {upto!r}")

    async def _conversation_of(self, entry_id: str) -> str:
        known = self._where.get(entry_id)
        if known is not None and await settle(self.thread(known).exists()):
            return known
        infos: Any = await settle(self.store.threads(prefix=f"{_ROOM}/"))
        for info in infos:
            name = split(info.id)[1]
            try:
                await self._items(name, entry_id)
            except (LookupError, NotFound):
                continue
            self._note(name, [entry_id])
            return name
        raise LookupError(f"no conversation has the entry {entry_id!r}")

    def _note(self, conversation_id: str, entries: list[str | None]) -> None:
        for entry in entries:
            if entry is not None:
                self._where.pop(entry, None)
                self._where[entry] = conversation_id
        while len(self._where) > _REMEMBERED:
            self._where.popitem(last=False)


def _item(entry: ConversationEntry) -> _Item:
    message = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")[0]
    return {"id": entry.id, "parent_id": entry.parent_id, "kind": entry.kind, "message": message}


def _entries(items: list[_Item]) -> list[ConversationEntry]:
    """Entries from items; read as JSON, which is what says that bytes are in base64."""
    messages = ModelMessagesTypeAdapter.validate_json(msgspec.json.encode([item["message"] for item in items]))
    return [
        ConversationEntry(id=item["id"], parent_id=item["parent_id"], message=message, kind=item["kind"])
        for item, message in zip(items, messages, strict=True)
    ]
