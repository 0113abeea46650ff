"""pydantic-ai's conversations on backtrail, compared with its own in-memory store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models.test import TestModel

from backtrail.adapters.pydantic_ai import BacktrailConversationStore

AGENT = Agent(TestModel(call_tools=[]))


async def say(store: Any, id: str, text: Any, **more: Any) -> list[ConversationEntry]:
    conversation = await store.load(id) or Conversation(conversation_id=id)
    return await store.save(await AGENT.run(text, conversation=conversation), **more)


def words(conversation: Any) -> list[str]:
    return [str(part.content) for message in conversation.messages for part in message.parts]


async def scenario(store: Any) -> list[Any]:
    """The results of a use of all methods, without ids and times."""
    results: list[Any] = [len(await say(store, "c/1", text, scope="me")) for text in ("one", "two", "three")]
    results.append(words(await store.load("c/1")))
    results.append(words(await store.load("c/1", limit=3)))
    fork = await store.fork("c/1", at=2, new_conversation_id="fork")
    await store.save(await AGENT.run("aside", conversation=fork))
    results.append(words(await store.load("fork")))
    record = await store.read_record("c/1")
    branch = await store.branch("c/1", at=4, expected_revision=record.revision)
    await store.save(await AGENT.run("other", conversation=branch))
    results.append(words(await store.load("c/1")))
    record = await store.read_record("c/1")
    results.append((len(record.branches), record.scope, record.usage.requests))
    back = await store.branch("c/1", from_entry=record.branches[0], expected_revision=record.revision)
    results.append(words(back))
    whole = await store.fork("c/1", new_conversation_id="whole")
    results.append(words(whole))
    listings = [await store.list_conversations(scope=scope) for scope in (None, "me", "nobody")]
    results.append([[one.conversation_id for one in listing] for listing in listings])
    results.append(await store.load("c/1", scope="nobody"))
    await store.delete("c/1")
    results.append((await store.load("c/1"), words(await store.load("fork")), words(await store.load("whole"))))
    return results


def test_all_methods_give_the_same_results_as_pydantic_ais_own_store(
    open_store: Any, run_async: Callable[[Any], Any]
) -> None:
    async def ours() -> Any:
        async with open_store() as store:
            return await scenario(BacktrailConversationStore(store))

    assert run_async(ours()) == asyncio.run(scenario(InMemoryConversationStore()))


def test_two_writers_cannot_overwrite_each_other(store: Any, run_async: Callable[[Any], Any]) -> None:
    async def race() -> None:
        one, other = BacktrailConversationStore(store), BacktrailConversationStore(store)
        await say(one, "c", "first")
        mine, theirs = await one.load("c"), await other.load("c")
        await other.save(await AGENT.run("theirs", conversation=theirs))
        with pytest.raises(ConversationConflict):
            await one.save(await AGENT.run("mine", conversation=mine))
        with pytest.raises(ConversationConflict):
            await one.save(Conversation(conversation_id="c"))
        assert len((await one.load("c")).messages) == 4

    run_async(race())


def test_a_restarted_process_finds_entries_branches_and_bytes(
    reopen_store: Callable[[], Any], run_async: Callable[[Any], Any]
) -> None:
    async def before() -> list[ConversationEntry]:
        store = reopen_store()
        ours = BacktrailConversationStore(store)
        entries = await say(ours, "c", ["look", BinaryContent(b"\x00\xff\xfe", media_type="application/pdf")])
        await say(ours, "c", "more")
        record = await ours.read_record("c")
        await ours.branch("c", at=0, expected_revision=record.revision)
        store.close()
        return entries

    async def after(entries: list[ConversationEntry]) -> None:
        ours = BacktrailConversationStore(reopen_store())
        entry = await ours.read_entry(entries[0].id)
        assert entry == entries[0]
        assert entry.message.parts[0].content[1].data == b"\x00\xff\xfe"
        with pytest.raises(LookupError):
            await ours.read_entry("nobody")

    run_async(after(run_async(before())))


def test_only_new_messages_are_written(store: Any, run_async: Callable[[Any], Any]) -> None:
    async def talk() -> None:
        ours = BacktrailConversationStore(store)
        for i in range(20):
            await say(ours, "c", f"{i} " * 200)

    run_async(talk())
    history = BacktrailConversationStore(store).thread("c").history()
    assert len(history) == 20
    assert history[-1].written < 2 * history[2].written


def test_a_record_whose_head_is_not_stored_is_a_conflict(store: Any, run_async: Callable[[Any], Any]) -> None:
    async def write() -> None:
        ours = BacktrailConversationStore(store)
        await say(ours, "c", "one")
        record = await ours.read_record("c")
        assert record is not None
        old, record.head_id, record.revision = record.revision, "nobody", "next"
        with pytest.raises(ConversationConflict):
            await ours.write_record(record, expected_revision=old)
        entry = ConversationEntry(parent_id="nobody", message=ModelRequest(parts=[UserPromptPart("x")]))
        record.conversation_id = "new"
        with pytest.raises(ConversationConflict):
            await ours.write_record(record, new_entries=[entry], expected_revision=None)
        with pytest.raises(UserError):
            await ours.fork("missing")
        assert len((await ours.load("c")).messages) == 2

    run_async(write())
