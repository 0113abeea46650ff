"""Programs with the OpenAI Agents SDK give the same results on backtrail's session as on the SDK's `SQLiteSession`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, RunState, SessionSettings, SQLiteSession, function_tool, handoff
from agents.extensions.memory.encrypt_session import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession
from agents.testing import ScriptedModel, assistant_message, function_call

from backtrail.adapters.openai_agents import BacktrailSession
from fix_differential import assert_same_results, outcome

OFFLINE = RunConfig(tracing_disabled=True)
KEY = "Yp3Vq3lq0P1vHkFfHGM0Vt0z7n1c8mYgkJ7q6cJm2rA="
PROGRAMS: list[Any] = []


def program(function: Any) -> Any:
    PROGRAMS.append(function)
    return function


class Kit:
    """Each session that it makes could be another process's."""

    def __init__(self, session: Callable[..., Any]) -> None:
        self.make = session

    def session(self, id: str = "s", **settings: Any) -> Any:
        return self.make(id, **settings)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_gives_the_same_results_as_on_the_sdks_own_session(
    program: Any, open_store: Any, tmp_path: Path, run_async: Callable[[Any], Any]
) -> None:
    @asynccontextmanager
    async def stock() -> AsyncIterator[Kit]:
        yield Kit(lambda id, **settings: SQLiteSession(id, tmp_path / "stock.db", **settings))

    async def both() -> None:
        async with open_store() as store:
            ours = Kit(lambda id, **settings: BacktrailSession(store, id, **settings))
            await assert_same_results(program, stock, ours)

    run_async(both())


def user(text: Any) -> Any:
    return {"role": "user", "content": text}


@function_tool
def weather(city: str) -> str:
    """Tells the weather."""
    return f"sunny in {city}"


def agent(*steps: Any, **more: Any) -> Any:
    return Agent(**{"name": "guide", "model": ScriptedModel([[step] for step in steps]), "tools": [weather], **more})


ASKS = function_call("weather", {"city": "Rome"}, call_id="call-1")
SAYS = assistant_message("It is sunny.")


@program
async def streaming(kit: Any) -> Any:
    seen: list[Any] = []
    for text in ("weather?", "again?"):
        result = Runner.run_streamed(agent(ASKS, SAYS), text, session=kit.session(), run_config=OFFLINE)
        seen += [event.type async for event in result.stream_events()]
        seen.append(result.final_output)
    return seen, await kit.session().get_items()


@program
async def a_crash_in_a_tool_and_a_second_process(kit: Any) -> Any:
    @function_tool(failure_error_function=None)
    def weather(city: str) -> str:
        """Fails."""
        raise ConnectionError("the network is away")

    failed = await outcome(
        Runner.run(agent(ASKS, tools=[weather]), "weather?", session=kit.session(), run_config=OFFLINE)
    )
    between = await kit.session().get_items()
    result = await Runner.run(agent(ASKS, SAYS), "and now?", session=kit.session(), run_config=OFFLINE)
    return failed, between, result.final_output, await kit.session().get_items()


@program
async def interrupts(kit: Any) -> Any:
    @function_tool(needs_approval=True)
    def weather(city: str) -> str:
        """Tells the weather."""
        return f"sunny in {city}"

    seen: list[Any] = []
    for number, approved in enumerate((True, False)):
        asks = function_call("weather", {"city": "Rome"}, call_id=f"call-{number}")
        guide = agent(asks, SAYS, tools=[weather])
        waiting = await Runner.run(guide, "weather?", session=kit.session(), run_config=OFFLINE)
        seen += [[one.name for one in waiting.interruptions], await kit.session().get_items()]
        state = await RunState.from_string(guide, waiting.to_state().to_string())  # as another process gets it
        for one in state.get_interruptions():
            (state.approve if approved else state.reject)(one)
        resumed = await Runner.run(guide, state, session=kit.session(), run_config=OFFLINE)
        seen += [resumed.final_output, await kit.session().get_items()]
    return seen


@program
async def values_of_all_kinds(kit: Any) -> Any:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    values = [
        *(
            "",
            "naïve 🙂",
            "NUL \0 and \x1f",
            "\u2028",
            0,
            -1,
            2**63,
            2**70,
            1.5,
            -0.0,
            float("nan"),
            float("inf"),
            True,
        ),
        *(None, [], {}, (1, 2), [[(1,)]], {2: "int", None: "none", True: "true", 1.5: "float"}, {"deep": {"er": [1]}}),
        *(b"bytes", {1, 2}, object, 1j, {(1, 2): 3}, cyclic),
    ]
    seen = []
    for number, value in enumerate(values):
        session = kit.session(f"s{number}")
        failed = await outcome(session.add_items([user("before"), user(value)]))
        seen.append((failed, await session.get_items()))
    return seen


@program
async def text_that_was_cut_in_an_emoji(kit: Any) -> Any:
    session = kit.session()
    whole = "stream 🙂"
    halves = [whole.encode("utf-16-le", "surrogatepass")[:-2].decode("utf-16-le", "surrogatepass"), "\ude42 rest"]
    await session.add_items([user(half) for half in halves])
    await session.add_items([{"role": "assistant", "content": [{"type": "output_text", "text": halves[0]}]}])
    await Runner.run(agent(assistant_message(halves[0])), halves[1], session=session, run_config=OFFLINE)
    return await kit.session().get_items(), await kit.session().get_items(limit=1), await session.pop_item()


@program
async def limits(kit: Any) -> Any:
    session = kit.session()
    items = [user("1"), {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}]
    items += [{"type": "function_call_output", "call_id": "a", "output": "x"}, user("2"), SAYS.model_dump()]
    await session.add_items(items)
    seen = [await session.get_items(limit=limit) for limit in (*range(-2, 8), None)]
    for settings in (SessionSettings(limit=2), {"limit": 3}, {"limit": 0}, {"limitt": 1}, None):
        try:
            limited = kit.session(session_settings=settings)
        except Exception as error:  # noqa: BLE001 - the error is the result
            seen.append(error)  # type: ignore[arg-type]
            continue
        seen += [limited.session_settings, await limited.get_items(), await limited.get_items(limit=1)]
    config = RunConfig(tracing_disabled=True, session_settings=SessionSettings(limit=2))
    model = ScriptedModel([[SAYS]])
    await Runner.run(Agent(name="a", model=model), "hi", session=session, run_config=config)
    return seen, [call.input for call in model.calls], await session.get_items()


@program
async def corrections_and_trimming(kit: Any) -> Any:
    def newest_two(history: list[Any], new: list[Any]) -> list[Any]:
        return history[-2:] + new

    session = kit.session()
    seen = [await session.pop_item(), await session.clear_session()]
    await session.add_items([])
    for number in range(4):
        await session.add_items([user(f"{number}a"), user(f"{number}b")])
    seen += [await session.pop_item(), await session.pop_item(), await session.get_items()]
    config = RunConfig(tracing_disabled=True, session_input_callback=newest_two)
    model = ScriptedModel([[SAYS]])
    await Runner.run(Agent(name="a", model=model), "corrected", session=session, run_config=config)
    seen += [[call.input for call in model.calls], await session.get_items(), await session.clear_session()]
    await session.add_items([user("after")])
    return seen, await kit.session().get_items(), await kit.session("other").get_items()


@program
async def concurrent_writers(kit: Any) -> Any:
    sessions = [kit.session() for _ in range(4)]
    await asyncio.gather(
        *(
            session.add_items([user(f"{n}-{i}"), user(f"{n}-{i}!")])
            for i in range(5)
            for n, session in enumerate(sessions)
        )
    )
    items = [item["content"] for item in await kit.session().get_items()]
    together = all(items[at + 1] == f"{items[at]}!" for at in range(0, len(items), 2))
    popped = await asyncio.gather(*(session.pop_item() for session in sessions for _ in range(3)))
    left = [item["content"] for item in await kit.session().get_items()]
    return sorted(items), together, len(popped), items[: len(left)] == left


@program
async def encryption_on_top(kit: Any) -> Any:
    def encrypted(key: str = KEY, **more: Any) -> Any:
        return EncryptedSession("s", kit.session(), encryption_key=key, **more)

    await kit.session().add_items([user("plain")])  # no part of the encrypted history
    for text in ("weather?", "again?"):
        await Runner.run(agent(ASKS, SAYS), text, session=encrypted(), run_config=OFFLINE)
    raw = await kit.session().get_items()
    seen = [await encrypted().get_items(limit=limit) for limit in (None, 0, 1, 3, 99)]
    seen += [[sorted(item) for item in raw], "weather" in str(raw)]
    seen += [await encrypted(key="another key").get_items(), await encrypted(ttl=-10).get_items()]
    seen += [await encrypted().pop_item(), await encrypted().pop_item(), await encrypted().get_items()]
    await encrypted().clear_session()
    return seen, await encrypted().get_items()


@program
async def compaction_on_top(kit: Any) -> Any:
    numbers = itertools.count(1)

    async def compact(**request: Any) -> Any:
        summary = {"type": "compaction", "id": "c-1", "encrypted_content": f"summary {next(numbers)}"}
        return SimpleNamespace(output=[summary], usage=None)

    def compacting(backend: Any, **more: Any) -> Any:
        client: Any = SimpleNamespace(responses=SimpleNamespace(compact=compact))
        return OpenAIResponsesCompactionSession("s", backend, client=client, compaction_mode="input", **more)

    seen: list[Any] = []
    session = compacting(kit.session(), should_trigger_compaction=lambda context: len(context["session_items"]) > 4)
    for text in ("one", "two", "three", "four"):
        await Runner.run(agent(ASKS, SAYS), text, session=session, run_config=OFFLINE)
        seen.append(await kit.session().get_items())
    await compacting(kit.session()).run_compaction({"force": True})
    seen.append(await kit.session().get_items())
    limited = compacting(kit.session(session_settings={"limit": 2}), should_trigger_compaction=lambda context: True)
    for text in ("five", "six"):  # the model sees the end only: only that is compacted
        await Runner.run(agent(SAYS), text, session=limited, run_config=OFFLINE)
        seen.append(await kit.session().get_items())
    secret = EncryptedSession("s", compacting(kit.session("e"), should_trigger_compaction=lambda context: True), KEY)
    for text in ("seven", "eight"):
        await Runner.run(agent(SAYS), text, session=secret, run_config=OFFLINE)
        seen.append(await secret.get_items())
    return seen


@program
async def sub_agents(kit: Any) -> Any:
    poet = agent(assistant_message("a poem"), name="poet", tools=[])
    transfer = function_call("transfer_to_poet", {}, call_id="call-h")
    first = Agent(name="triage", model=ScriptedModel([[transfer]]), handoffs=[handoff(poet)])
    result = await Runner.run(first, "a poem, please", session=kit.session(), run_config=OFFLINE)
    nested = agent(assistant_message("42"), name="sums", tools=[]).as_tool(
        "sums", "Sums.", session=kit.session("inner")
    )
    asks = function_call("sums", {"input": "6*7"}, call_id="call-t")
    second = await Runner.run(agent(asks, SAYS, tools=[nested]), "6*7?", session=kit.session(), run_config=OFFLINE)
    outer, inner = await kit.session().get_items(), await kit.session("inner").get_items()
    return result.final_output, result.last_agent.name, second.final_output, outer, inner
