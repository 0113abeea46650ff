"""Programs with pydantic-ai give the same results on backtrail's store as on pydantic-ai's in-memory one.

That one keeps Python objects; messages are compared in the JSON form that pydantic-ai gives them, because a store that
writes them to a disk can keep no other.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pydantic
import pytest
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, DeferredToolResults, ImageUrl, RunContext
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import InMemoryConversationStore
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from backtrail.adapters.pydantic_ai import BacktrailConversationStore
from fix_differential import assert_same_results, outcome

ECHO = Agent(TestModel(call_tools=[]))
PROGRAMS: list[Any] = []


def program(function: Any) -> Any:
    PROGRAMS.append(function)
    return function


class Kit:
    """Opens the store again at each use, as another process does."""

    def __init__(self, open_store: Callable[[], Any]) -> None:
        self.open_store = open_store

    @property
    def store(self) -> Any:
        return self.open_store()

    async def say(self, id: str, text: Any, agent: Any = ECHO, **more: Any) -> Any:
        conversation = await self.store.load(id) or Conversation(conversation_id=id)
        return entries(await self.store.save(await agent.run(text, conversation=conversation), **more))

    async def words(self, id: str, **more: Any) -> Any:
        conversation = await self.store.load(id, **more)
        return conversation and seen(conversation)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_gives_the_same_results_as_on_pydantic_ais_own_store(
    program: Any, open_store: Any, run_async: Callable[[Any], Any]
) -> None:
    @asynccontextmanager
    async def stock() -> AsyncIterator[Kit]:
        store = InMemoryConversationStore()
        yield Kit(lambda: store)

    async def both() -> None:
        async with open_store() as store:
            await assert_same_results(program, stock, Kit(lambda: BacktrailConversationStore(store)))

    run_async(both())


def messages(of: Any) -> Any:
    plain = ModelMessagesTypeAdapter.dump_python(list(of), mode="json")
    return ModelMessagesTypeAdapter.dump_python(ModelMessagesTypeAdapter.validate_python(plain), mode="json")


def seen(conversation: Any) -> Any:
    rest = (through_json(conversation.usage), conversation.new_message_index, conversation.revision)
    return messages(conversation.messages), *rest


def through_json(value: Any) -> Any:
    adapter = pydantic.TypeAdapter(type(value))
    return adapter.validate_json(adapter.dump_json(value))


def entries(of: Any) -> Any:
    return [(one.id, one.parent_id, one.kind, messages([one.message])) for one in of]


@program
async def streaming(kit: Kit) -> Any:
    async def stream(history: Any, info: AgentInfo) -> Any:
        if len(history) == 1:
            yield {0: DeltaToolCall(name="weather", json_args='{"city":', tool_call_id="call-1")}
            yield {0: DeltaToolCall(json_args=' "Rome"}')}
        else:
            for piece in ("It ", "is ", "sunny."):
                yield piece

    agent = Agent(FunctionModel(stream_function=stream))

    @agent.tool_plain
    def weather(city: str) -> str:
        return f"sunny in {city}"

    async with agent.run_stream("weather?", conversation=Conversation(conversation_id="c")) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        conversation = Conversation(conversation_id="c", messages=result.all_messages())
    saved = entries(await kit.store.save(conversation))
    return pieces, saved, await kit.words("c"), await kit.say("c", "and now?")


@program
async def a_crash_in_a_tool_and_a_second_process(kit: Kit) -> Any:
    broken = True

    def respond(history: Any, info: AgentInfo) -> Any:
        asked = any(part.part_kind == "tool-return" for part in history[-1].parts)
        return ModelResponse(parts=[TextPart("sunny") if asked else ToolCallPart("weather", {}, tool_call_id="call-1")])

    agent = Agent(FunctionModel(respond))

    @agent.tool
    def weather(context: RunContext[None]) -> str:
        if broken:
            raise ConnectionError("the network is away")
        return "sun"

    await kit.say("c", "hello")
    failed = await outcome(kit.say("c", "weather?", agent))
    between = await kit.words("c")
    broken = False
    return failed, between, await kit.say("c", "weather?", agent), await kit.words("c")


@program
async def interrupts(kit: Kit) -> Any:
    def respond(history: Any, info: AgentInfo) -> Any:
        asked = any(part.part_kind == "tool-return" for part in history[-1].parts)
        return ModelResponse(parts=[TextPart("done") if asked else ToolCallPart("delete", {}, tool_call_id="call-1")])

    agent = Agent(FunctionModel(respond), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return "deleted"

    found: list[Any] = []
    for id, approved in (("yes", True), ("no", False)):
        waiting = await agent.run("delete it", conversation=Conversation(conversation_id=id))
        found += [[one.tool_name for one in waiting.output.approvals], entries(await kit.store.save(waiting))]
        answers = DeferredToolResults(approvals={"call-1": approved})
        resumed = await agent.run(conversation=await kit.store.load(id), deferred_tool_results=answers)
        found += [resumed.output, entries(await kit.store.save(resumed)), await kit.words(id)]
    return found


class Plan(pydantic.BaseModel):
    goal: str
    due: dt.date


@program
async def values_of_all_kinds(kit: Kit) -> Any:
    prompts: list[Any] = [
        *("", "naïve 🙂", "NUL \0", "\x1f \u2028"),
        ["look", BinaryContent(data=b"\x89PNG\0\xff", media_type="image/png"), ImageUrl(url="https://x.org/y.png")],
        [BinaryContent(data=b"", media_type="application/pdf", identifier="mine")],
    ]
    saved = [await kit.say(f"p{number}", prompt) for number, prompt in enumerate(prompts)]
    loaded = [await kit.words(f"p{number}") for number in range(len(prompts))]
    values = (1, 2**70, 1.5, True, None, [1, (2, 3)], {"a": {1: 2}}, dt.datetime(2026, 1, 2), decimal.Decimal("1.10"))
    agent = Agent(TestModel())
    for number, value in enumerate((*values, Plan(goal="x", due=dt.date(2026, 1, 2)), b"bytes")):
        agent.tool_plain(name=f"give_{number}")(lambda value=value: value)
    return saved, loaded, await kit.say("given", "give", agent), await kit.words("given")


@program
async def text_that_was_cut_in_an_emoji(kit: Kit) -> Any:
    cut = "stream \ud83d"
    parts = [ModelRequest(parts=[UserPromptPart(cut)]), ModelResponse(parts=[TextPart(cut)])]
    saved = entries(await kit.store.save(Conversation(conversation_id="c", messages=parts)))
    return saved, await kit.words("c"), await kit.say("c", ["\ude42 rest", cut]), await kit.words("c", limit=2)


@program
async def limits(kit: Kit) -> Any:
    for number in range(4):
        await kit.say("c", f"turn {number}")
    loaded = [await kit.words("c", limit=limit) for limit in (None, 1, 2, 3, 7, 99)]
    window = await kit.store.load("c", limit=2)
    saved = entries(await kit.store.save(await ECHO.run("from a window", conversation=window)))
    head = (await kit.store.read_record("c")).head_id
    history = [entries(await kit.store.read_history(head, limit=limit)) for limit in (None, 1, 4, 99)]
    return loaded, saved, history, await kit.words("c"), await kit.store.read_history(None)


@program
async def rewinds_by_branch_and_fork(kit: Kit) -> Any:
    for number in range(3):
        await kit.say("c", f"turn {number}")
    revision = (await kit.store.read_record("c")).revision
    branch = await kit.store.branch("c", at=2, expected_revision=revision)
    await kit.store.save(await ECHO.run("another way", conversation=branch))
    record = await kit.store.read_record("c")
    left = await kit.store.branch("c", from_entry=record.branches[0], expected_revision=record.revision)
    fork = await kit.store.fork("c", at=2, new_conversation_id="fork")
    await kit.store.save(await ECHO.run("aside", conversation=fork))
    whole = await kit.store.fork("c", new_conversation_id="whole")
    taken = await outcome(kit.store.fork("c", new_conversation_id="whole"))
    nobody = await outcome(kit.store.fork("nobody"))
    found = [await kit.words(id) for id in ("c", "fork", "whole")]
    records = [through_json(await kit.store.read_record(id)) for id in ("c", "fork")]
    return seen(left), seen(whole), taken, nobody, found, records


@program
async def rewritten_history(kit: Kit) -> Any:
    for number in range(3):
        await kit.say("c", f"turn {number}")
    conversation = await kit.store.load("c")
    edited = Conversation(
        conversation_id="c",
        messages=[*conversation.messages[:2], ModelRequest(parts=[UserPromptPart("edited")])],
        revision=conversation.revision,
    )
    saved = entries(await kit.store.save(edited))
    nothing = entries(await kit.store.save(edited))
    return saved, nothing, await kit.words("c"), len((await kit.store.read_record("c")).branches)


@program
async def a_history_that_a_run_trims(kit: Kit) -> Any:
    async def newest(history: list[Any]) -> list[Any]:
        return history[-1:]

    agent = Agent(TestModel(call_tools=[]), capabilities=[ProcessHistory(newest)])
    saved = [await kit.say("c", f"turn {number}", agent) for number in range(3)]
    return saved, await kit.words("c"), await kit.words("c", limit=1)


@program
async def scopes_and_deletions(kit: Kit) -> Any:
    for id, scope in (("a", "ann"), ("b", "bob"), ("ü/%", "ann"), ("none", None)):
        await kit.say(id, id, scope=scope)
    await kit.say("a", "again")
    listed = [
        [one.conversation_id for one in await kit.store.list_conversations(scope=scope, limit=limit)]
        for scope, limit in ((None, None), ("ann", None), ("ann", 1), ("nobody", None))
    ]
    hidden = [await kit.words("a", scope="bob"), await outcome(kit.say("a", "x", scope="bob"))]
    await kit.store.delete("a", scope="bob")
    kept = await kit.words("a")
    entry = (await kit.store.read_record("a")).head_id
    await kit.store.delete("a")
    await kit.store.delete("a")
    gone = [await kit.words("a"), await kit.store.read_record("a"), await outcome(kit.store.read_entry(entry))]
    return listed, hidden, kept, gone, await kit.say("a", "anew"), await outcome(kit.store.read_entry("nobody"))


@program
async def concurrent_writers(kit: Kit) -> Any:
    await kit.say("c", "first")
    one, other = await kit.store.load("c"), await kit.store.load("c")
    saved = await kit.store.save(await ECHO.run("mine", conversation=one))
    lost = await outcome(kit.store.save(await ECHO.run("yours", conversation=other)))
    again = await outcome(kit.store.save(Conversation(conversation_id="c")))
    races = await asyncio.gather(*(outcome(kit.say("new", f"{number}")) for number in range(4)))
    kinds = sorted(type(result).__name__ for result in races)
    return len(saved), lost, again, kinds, await kit.words("c")
