"""LangGraph inside of a durable run: a tool's calls are steps of it, and a graph's interrupts are its questions."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import ToolMessage, message_to_dict, messages_from_dict
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.types import Command

from backtrail.adapters.run_steps import Question, ask_all, require_run, step_async, step_sync
from backtrail.adapters.sync_bridge import maybe_await, run_in_place
from backtrail.aio import AsyncRun
from backtrail.errors import InvalidInput
from backtrail.run import Run


class _DurableTool(BaseTool):
    """A tool whose calls are steps of the current run."""

    inner: BaseTool

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        run = require_run(f"the durable tool {self.name!r}")
        arguments, key = _call_of(input)

        def call(_: Any) -> Any:
            return _to_state(self.inner.invoke(input, config, **kwargs))

        return _from_state(step_sync(run, self.name, call, arguments, key=key))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        run = require_run(f"the durable tool {self.name!r}")
        arguments, key = _call_of(input)

        async def call(_: Any) -> Any:
            return _to_state(await self.inner.ainvoke(input, config, **kwargs))

        return _from_state(await step_async(run, self.name, call, arguments, key=key))

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise InvalidInput(f"the durable tool {self.name!r} is called by invoke() or ainvoke(): only these record it")


def durable_tool(tool: BaseTool) -> BaseTool:
    """A tool whose calls are steps of the current run: each is done once, by the id of its call.

        graph_tools = [durable_tool(pay)]

    A graph that is resumed calls a tool again with the same id, and gets the recorded message. What the tool returns
    must be a value that can be saved.
    """
    if not isinstance(tool, BaseTool):
        raise InvalidInput(f"durable_tool() takes a tool, as @tool makes it, not {type(tool).__name__}")
    return _DurableTool(
        inner=tool,
        name=tool.name,
        description=tool.description,
        args_schema=tool.args_schema,
        return_direct=tool.return_direct,
        tags=tool.tags,
        metadata=tool.metadata,
    )


def _call_of(input: Any) -> tuple[Any, str | None]:
    """The arguments of a call, and its id if a model made it."""
    if isinstance(input, dict) and input.get("type") == "tool_call":
        return input["args"], input.get("id")
    return input, None


def _to_state(output: Any) -> dict[str, Any]:
    return {"message": message_to_dict(output)} if isinstance(output, ToolMessage) else {"value": output}


def _from_state(saved: dict[str, Any]) -> Any:
    return messages_from_dict([saved["message"]])[0] if "message" in saved else saved["value"]


# -- interrupts --------------------------------------------------------------------------------------------------------


def run_graph(run: Run, graph: Any, input: Any, config: RunnableConfig) -> Any:
    """Run a graph inside of a durable run; its interrupts are questions of it.

        with store.run("order-12") as run:
            run.result = run_graph(run, graph, {"order": 12}, {"configurable": {"thread_id": "order-12"}})

    `store.pending()` lists what the graph passed to `interrupt()`, and `store.answer()` gives what that returns.
    `Suspended` leaves the block until all are answered; another process goes on from the graph's last checkpoint.
    """
    return run_in_place(_run_graph(run, graph, input, config, ""))


async def arun_graph(run: AsyncRun, graph: Any, input: Any, config: RunnableConfig) -> Any:
    """Run a graph inside of a durable run, as `run_graph` does; the graph's async methods are used."""
    return await _run_graph(run, graph, input, config, "a")


async def _run_graph(run: Run | AsyncRun, graph: Any, input: Any, config: RunnableConfig, prefix: str) -> Any:
    invoke, get_state = getattr(graph, f"{prefix}invoke"), getattr(graph, f"{prefix}get_state")
    state = await maybe_await(get_state(config))
    given = input if state.created_at is None else None  # None goes on where the graph was
    while state.created_at is None or state.next:
        if state.interrupts:
            questions = [Question(f"interrupt {one.id}", one.value) for one in state.interrupts]
            answers = await ask_all(run, questions)
            given = Command(resume={one.id: answer for one, answer in zip(state.interrupts, answers, strict=True)})
        await maybe_await(invoke(given, config))
        state, given = await maybe_await(get_state(config)), None
    return state.values
