"""Programs with Google ADK give the same results on backtrail's services as on ADK's database and in-memory ones."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pydantic
import pytest
from google.adk.agents import LlmAgent, RunConfig, SequentialAgent
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.artifacts import InMemoryArtifactService
from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.adk.flows.llm_flows.functions import REQUEST_CONFIRMATION_FUNCTION_CALL_NAME as CONFIRMATION
from google.adk.models import BaseLlm, LlmResponse
from google.adk.platform import time as clock
from google.adk.platform import uuid as random_ids
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types

from backtrail.adapters.adk import BacktrailArtifactService, BacktrailSessionService
from fix_differential import assert_same_results, outcome

WHO: Any = {"app_name": "app", "user_id": "ann"}
HERE: Any = {**WHO, "session_id": "s"}
CUT = "stream \ud83d"  # cut in an emoji
PROGRAMS: list[Any] = []


def program(function: Any) -> Any:
    PROGRAMS.append(function)
    return function


class Kit:
    """Each session service that it makes could be another process's."""

    def __init__(self, sessions: Callable[[], Any], artifacts: Any) -> None:
        self.sessions = sessions
        self.artifacts = artifacts


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_gives_the_same_results_as_on_adks_own_services(
    program: Any, open_store: Any, tmp_path: Path, run_async: Callable[[Any], Any]
) -> None:
    @asynccontextmanager
    async def stock() -> AsyncIterator[Kit]:
        async with AsyncExitStack() as services:

            def sessions() -> Any:
                service = DatabaseSessionService(f"sqlite+aiosqlite:///{tmp_path}/stock.db")
                services.push_async_callback(service.close)
                return service

            yield Kit(sessions, InMemoryArtifactService())

    async def both() -> None:
        async with open_store() as store:
            ours = Kit(lambda: BacktrailSessionService(store), BacktrailArtifactService(store))
            await assert_same_results(program, stock, ours)

    run_async(both())


class Scripted(BaseLlm):
    """Says the parts of its script, one per call, in pieces if it streams."""

    script: list[Any]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        part = self.script.pop(0)
        if stream and part.text:
            for character in part.text:
                piece = types.Content(role="model", parts=[types.Part(text=character)])
                yield LlmResponse(content=piece, partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def agent(*script: Any, **more: Any) -> Any:
    parts = [types.Part(text=one) if isinstance(one, str) else one for one in script]
    return LlmAgent(**{"name": "guide", "model": Scripted(model="scripted", script=parts), **more})


def call(name: str, /, **arguments: Any) -> Any:
    return types.Part(function_call=types.FunctionCall(id=f"call-{name}", name=name, args=arguments))


def said(text: str) -> Any:
    return types.Content(role="user", parts=[types.Part(text=text)])


def event(text: str = "x", **delta: Any) -> Event:
    return Event(author="user", content=said(text), actions=EventActions(state_delta=delta))


async def run(kit: Any, agent: Any, text: Any, **more: Any) -> Any:
    message = said(text) if isinstance(text, str) else text
    runner = Runner(app_name="app", agent=agent, session_service=kit.sessions(), artifact_service=kit.artifacts)
    return [one async for one in runner.run_async(user_id="ann", session_id="s", new_message=message, **more)]


async def get(kit: Any, **config: Any) -> Any:
    return await kit.sessions().get_session(**HERE, config=GetSessionConfig(**config))


@program
async def streaming(kit: Any) -> Any:
    await kit.sessions().create_session(**HERE)
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    seen = [await run(kit, agent("hello", output_key="answer"), text, run_config=config) for text in ("one", "two")]
    return seen, await get(kit)


@program
async def a_crash_in_a_tool_and_a_second_process(kit: Any) -> Any:
    def weather(city: str, tool_context: ToolContext) -> str:
        tool_context.state["asked"] = city
        if tool_context.state.get("broken", True):
            raise ConnectionError("the network is away")
        return f"sunny in {city}"

    await kit.sessions().create_session(**HERE, state={"first": 1})
    failed = await outcome(run(kit, agent(call("weather", city="Rome"), tools=[weather]), "weather?"))
    between = await get(kit)
    service = kit.sessions()
    await service.append_event(await service.get_session(**HERE), event("repaired", broken=False))
    again = await run(kit, agent(call("weather", city="Oslo"), "It is sunny.", tools=[weather]), "and now?")
    return failed, between, again, await get(kit)


@program
async def interrupts(kit: Any) -> Any:
    def delete(name: str) -> str:
        return f"{name} is gone"

    seen: list[Any] = []
    await kit.sessions().create_session(**HERE)
    for confirmed in (True, False):
        tools = [FunctionTool(delete, require_confirmation=True)]
        waiting = await run(kit, agent(call("delete", name="x"), tools=tools), "delete it")
        asked = [one for event in waiting for one in event.get_function_calls() if one.name == CONFIRMATION]
        answer = types.FunctionResponse(id=asked[0].id, name=CONFIRMATION, response={"confirmed": confirmed})
        content = types.Content(role="user", parts=[types.Part(function_response=answer)])
        seen += [waiting, await run(kit, agent("done", tools=tools), content), await get(kit)]
        seen[-1].events.sort(key=lambda one: one.timestamp)  # as the database service does, but not the in-memory one
    return seen


class Colour(enum.Enum):
    RED = "red"


class Plan(pydantic.BaseModel):
    goal: str
    due: dt.date


@program
async def values_in_state(kit: Any) -> Any:
    plain = [
        *("", "naïve 🙂", "NUL \0", "\x1f", 0, -1, 2**53 + 1, 2**63, 2**70, 1.5, -0.0, True, None, float("inf")),
        *([], {}, (1, (2,)), {1}, frozenset({1}), {1: "int"}, {None: 1}, {"deep": {"er": [1]}}, b"bytes"),
        *(dt.datetime(2026, 1, 2, 3, 4), dt.date(2026, 1, 2), dt.timedelta(seconds=90), uuid.UUID(int=5)),
        *(decimal.Decimal("1.10"), Colour.RED, Plan(goal="x", due=dt.date(2026, 1, 2)), Path("a/b"), 1j, range(3)),
    ]
    states: list[dict[Any, Any]] = [{f"v{number}": value for number, value in enumerate(plain)}]
    states += [{"v": value, "fine": (1,)} for value in (len, Plan, [len, 1], {(1, 2): 3}, b"\xff", object)]
    seen: list[Any] = []
    service = kit.sessions()
    for number, state in enumerate(states):
        who, then = {**WHO, "session_id": f"created {number}"}, {**WHO, "session_id": f"appended {number}"}
        everywhere = {
            f"{scope}{key}": value for scope in ("", "user:", "app:", "temp:") for key, value in state.items()
        }
        seen.append(await outcome(service.create_session(**who, state=everywhere)))
        seen.append(await outcome(service.get_session(**who)))
        failed = await outcome(service.append_event(await service.create_session(**then), event("x", **everywhere)))
        seen.append(isinstance(failed, Exception) and failed)
        seen.append(await outcome(service.get_session(**then)))
    return seen, await outcome(service.create_session(**WHO, state={1: "a key that is no text"}))


@program
async def scopes_of_state(kit: Any) -> Any:
    service = kit.sessions()
    state = {"own": 1, "user:name": "Ann", "app:unit": "EUR", "temp:x": 1}
    created = [await service.create_session(**WHO, session_id=id, state=state if id == "a" else None) for id in "ab"]
    other = await service.create_session(app_name="app", user_id="bob", session_id="a")
    await service.append_event(created[0], event("1", own=2, **{"user:name": "Änn", "app:unit": None, "temp:y": [1]}))
    await service.append_event(created[0], event("2", more={"a": [1]}))
    again = [await kit.sessions().get_session(**WHO, session_id=id) for id in "ab"]
    states = [await kit.sessions().get_user_state(app_name="app", user_id=user) for user in ("ann", "bob", "nobody")]
    return created, other, again, states, await kit.sessions().list_sessions(app_name="app")


@program
async def trimming(kit: Any) -> Any:
    service = kit.sessions()
    session = await service.create_session(**HERE)
    for number in range(6):
        one = event(str(number))
        one.timestamp = 1_600_000_000.0 + number
        await service.append_event(session, one)
    configs = [{"num_recent_events": count} for count in (0, 1, 4, 99)]
    configs += [{"after_timestamp": 1_600_000_000.0 + second} for second in (-1, 0, 2.5, 3, 99)]
    configs += [{"num_recent_events": 2, "after_timestamp": 1_600_000_000.0 + second} for second in (1, 5)]
    return [(await get(kit, **config)).events for config in configs], await outcome(get(kit, num_recent_events=-1))


@program
async def ids_and_listings(kit: Any) -> Any:
    service = kit.sessions()
    seen = [await service.create_session(**WHO, session_id=id) for id in ("s-2", "s-1", "ü/%", "UPPER")]
    seen.append(await outcome(service.create_session(**WHO, session_id="s-1")))
    anonymous = await service.create_session(**WHO)
    await service.append_event(await service.get_session(**WHO, session_id="s-2"), event("newest"))
    seen.append([one.id for one in (await service.list_sessions(**WHO)).sessions])
    await service.delete_session(**WHO, session_id="s-1")
    await service.delete_session(**WHO, session_id="s-1")
    seen += [await service.get_session(**WHO, session_id=id) for id in ("s-1", "nobody", anonymous.id)]
    seen += [await outcome(service.append_event(Session(**WHO, id="nobody"), event()))]
    seen += [(await service.list_sessions(app_name="other")).sessions]
    recreated = await service.create_session(**WHO, session_id="s-1")
    return seen, recreated.events, [len(one.events) for one in (await service.list_sessions(**WHO)).sessions]


@program
async def two_writers(kit: Any) -> Any:
    one, other = kit.sessions(), kit.sessions()
    mine = await one.create_session(**HERE)
    yours = await other.get_session(**HERE)
    seen = [await outcome(one.append_event(mine, event("mine", a=1)))]
    seen += [await outcome(other.append_event(yours, event("yours", a=2))), yours]
    fresh = await other.get_session(**HERE)
    seen += [await outcome(other.append_event(fresh, event("yours again", a=3)))]
    built = Session(**WHO, id="s", state=dict(fresh.state), events=list(fresh.events))  # by hand, without a revision
    built.last_update_time = fresh.last_update_time
    seen += [await outcome(one.append_event(built, event("built")))]
    old = Session(**WHO, id="s", events=list(mine.events))
    old.last_update_time = mine.last_update_time
    seen += [await outcome(one.append_event(old, event("old")))]
    created = await asyncio.gather(
        *(outcome(kit.sessions().create_session(**WHO, session_id="race")) for _ in range(4))
    )
    return seen, await get(kit), sorted(type(result).__name__ for result in created)


@program
async def tasks_that_share_a_session_object(kit: Any) -> Any:
    sessions = kit.sessions()
    session = await sessions.create_session(**HERE)
    appends = [sessions.append_event(session, event(f"{n}", **{f"k{n}": n, "user:last": n})) for n in range(5)]
    appended = await asyncio.gather(*map(outcome, appends))
    stored = await get(kit)
    texts = [[one.content.parts[0].text for one in which.events] for which in (session, stored)]
    return [type(one).__name__ for one in appended], texts, session.state, stored.state


@program
async def a_rewind_with_artifacts(kit: Any) -> Any:
    async def note(name: str, text: str, tool_context: ToolContext) -> str:
        version = await tool_context.save_artifact(name, types.Part(text=text))
        tool_context.state[name] = tool_context.state["user:last"] = text
        return f"version {version}"

    await kit.sessions().create_session(**HERE, state={"start": 1})
    for number, names in enumerate((["a.txt"], ["a.txt", "b.txt"], ["user:c.txt"])):
        script = [call("note", name=name, text=f"{name} {number}") for name in names]
        await run(kit, agent(*script, "noted", tools=[note]), f"turn {number}")
    second = [one.invocation_id for one in (await get(kit)).events if one.author == "user"][1]
    runner = Runner(app_name="app", agent=agent(), session_service=kit.sessions(), artifact_service=kit.artifacts)
    await runner.rewind_async(user_id="ann", session_id="s", rewind_before_invocation_id=second)
    names = ("a.txt", "b.txt", "user:c.txt")
    loaded = [await kit.artifacts.load_artifact(**HERE, filename=name) for name in names]
    versions = [await kit.artifacts.list_versions(**HERE, filename=name) for name in names]
    keys = await kit.artifacts.list_artifact_keys(**HERE)
    after = await run(kit, agent("after the rewind"), "go on")
    unknown = await outcome(runner.rewind_async(user_id="ann", session_id="s", rewind_before_invocation_id="nobody"))
    return loaded, versions, keys, after, unknown, await get(kit)


@program
async def artifacts_of_all_kinds(kit: Any) -> Any:
    service = kit.artifacts
    uri = "artifact://apps/app/users/ann/sessions/s/artifacts/text/versions/0"
    parts: dict[str, Any] = {
        "text": types.Part(text="hello"),
        "bytes": types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89PNG\0")),
        "no bytes": types.Part(inline_data=types.Blob(mime_type="text/csv", data=b"")),
        "removed": types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b"")),
        "empty text": types.Part(text=""),
        "named": types.Part(inline_data=types.Blob(mime_type="a/b", data=b"x", display_name="n"), thought=True),
        "uri": types.Part(file_data=types.FileData(file_uri="gs://b/x", mime_type="text/plain")),
        "reference": types.Part(file_data=types.FileData(file_uri=uri)),
        "itself": types.Part(
            file_data=types.FileData(file_uri=uri.replace("text/versions", "itself/versions"), mime_type="a/b")
        ),
        "other user's": types.Part(file_data=types.FileData(file_uri=uri.replace("ann", "bob"))),
        "other session's": types.Part(file_data=types.FileData(file_uri=uri.replace("sessions/s", "sessions/t"))),
        "no reference": types.Part(file_data=types.FileData(file_uri="artifact://nonsense")),
        "nothing": types.Part(),
        "a call": call("f"),
        "a dict": {"text": "from a dict"},
        "camel": {"inlineData": {"mimeType": "text/plain", "data": "aGk="}},
        "dir/ü%": types.Part(text="slash"),
        "user:mine": types.Part(text="the user's"),
    }
    seen: list[Any] = []
    for name, part in parts.items():
        seen.append((name, await outcome(service.save_artifact(**HERE, filename=name, artifact=part))))
        seen.append(await outcome(service.load_artifact(**HERE, filename=name)))
        version = await outcome(service.get_artifact_version(**HERE, filename=name))
        seen.append((version.mime_type, version.version) if version and not isinstance(version, Exception) else version)
    for version in (None, 0, 1, 2, -1):
        await service.save_artifact(
            **HERE, filename="v", artifact=types.Part(text=f"{version}"), custom_metadata={"n": version, "l": [1]}
        )
        seen.append(await outcome(service.load_artifact(**HERE, filename="v", version=version)))
        seen.append(await outcome(service.get_artifact_version(**HERE, filename="v", version=version)) is None)
    listed = await service.list_artifact_versions(**HERE, filename="v")
    seen.append([(one.version, one.mime_type, one.custom_metadata) for one in listed])
    seen += [await service.list_artifact_keys(**HERE), await service.list_artifact_keys(**WHO)]
    await service.delete_artifact(**HERE, filename="v")
    await service.delete_artifact(**HERE, filename="v")
    seen += [await service.list_versions(**HERE, filename="v"), await service.load_artifact(**HERE, filename="v")]
    seen += [await outcome(service.save_artifact(**WHO, filename="x", artifact=types.Part(text="x")))]
    seen += [await service.load_artifact(**WHO, filename="user:mine")]
    for name in ("..", "/abs", "a/../b", "", " ", "C:", "nul\0", "a/sessions/b"):
        for field in ("app_name", "user_id", "session_id"):
            key = {**HERE, field: name}
            seen.append(await outcome(service.load_artifact(**key, filename="text")))
            seen.append(await outcome(service.list_artifact_keys(**key)))
    return seen


@program
async def the_clock_and_the_ids_of_the_program(kit: Any) -> Any:
    clock.set_time_provider(lambda: 1_000_000_000.5)
    random_ids.set_id_provider(lambda: "made by the program")
    try:
        session = await kit.sessions().create_session(**WHO)
        await kit.artifacts.save_artifact(**HERE, filename="f", artifact=types.Part(text="x"))
        version = await kit.artifacts.get_artifact_version(**HERE, filename="f")
        return session, version.create_time
    finally:
        clock.reset_time_provider()
        random_ids.reset_id_provider()


@program
async def sub_agents(kit: Any) -> Any:
    await kit.sessions().create_session(**HERE)
    poet = agent("a poem", name="poet", output_key="poem")
    triage = agent(call("transfer_to_agent", agent_name="poet"), name="triage", sub_agents=[poet])
    first = await run(kit, triage, "a poem, please")
    pipeline = SequentialAgent(
        name="pipeline",
        sub_agents=[
            agent("draft", name="writer", output_key="temp:draft"),
            agent("final", name="editor", output_key="final", instruction="Edit {temp:draft}"),
        ],
    )
    return first, await run(kit, pipeline, "write"), await get(kit)


class Summary(BaseEventsSummarizer):
    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        content = types.Content(role="model", parts=[types.Part(text=f"{len(events)} events")])
        times = {"start_timestamp": events[0].timestamp, "end_timestamp": events[-1].timestamp}
        compaction = EventCompaction(**times, compacted_content=content)
        return Event(author="user", actions=EventActions(compaction=compaction), invocation_id=Event.new_id())


@program
async def compaction(kit: Any) -> Any:
    await kit.sessions().create_session(**HERE)
    config = EventsCompactionConfig(summarizer=Summary(), compaction_interval=2, overlap_size=1)
    for number in range(5):
        app = App(name="app", root_agent=agent(f"answer {number}"), events_compaction_config=config)
        runner = Runner(app=app, session_service=kit.sessions())
        async for _ in runner.run_async(user_id="ann", session_id="s", new_message=said(f"turn {number}")):
            pass
    return await get(kit)


@program
async def text_that_was_cut_in_an_emoji(kit: Any) -> Any:
    service = kit.sessions()
    session = await service.create_session(**HERE)
    seen = [type(await outcome(service.append_event(session, event("whole", note="whole")))).__name__]
    for one in (event(CUT), event("in state", note=CUT), event("deep", note={"a": [CUT]})):
        session = await service.get_session(**HERE)
        failed = await outcome(service.append_event(session, one))
        seen.append((isinstance(failed, Exception), await outcome(kit.sessions().get_session(**HERE))))
    failed = await outcome(kit.artifacts.save_artifact(**HERE, filename="cut", artifact=types.Part(text=CUT)))
    seen.append((isinstance(failed, Exception), await outcome(kit.artifacts.load_artifact(**HERE, filename="cut"))))
    return seen
