"""A pydantic-ai agent in a durable run: killed between two tools, it goes on, and asks the model nothing twice.

    python examples/pydantic_ai_durable.py

With `BacktrailDurability`, each model request and each tool call is a step of the run around it. It needs the extra
`pydantic-ai`. It prints:

    killed
    finished: Oslo: 3 degrees, Rome: 21 degrees
    model, weather Oslo, weather Rome, model: each once
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import backtrail.aio
from backtrail.adapters.pydantic_ai import BacktrailDurability


def note(what: str) -> None:
    with Path("calls.txt").open("a") as calls:
        calls.write(what + "\n")


def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """A model that answers from a script."""
    note("model")
    found = [str(part.content) for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not found:
        calls = [ToolCallPart("weather", {"city": city}, f"call-{city}") for city in ("Oslo", "Rome")]
        return ModelResponse(calls)
    return ModelResponse([TextPart(", ".join(found))])


agent = Agent(FunctionModel(respond), name="weather", capabilities=[BacktrailDurability()])


@agent.tool_plain(sequential=True)
def weather(city: str) -> str:
    """Tells the temperature in a city."""
    if city == os.environ.get("KILLED_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    note(f"weather {city}")
    return f"{city}: {({'Oslo': 3, 'Rome': 21})[city]} degrees"


async def work() -> None:
    async with await backtrail.aio.open("backtrail.db") as store, store.run("report") as run:
        run.result = (await agent.run("How is the weather in Oslo and Rome?")).output


def main(folder: str) -> None:
    program = [sys.executable, __file__, "work"]
    killed = subprocess.run(program, cwd=folder, env={**os.environ, "KILLED_AT": "Rome"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    print("killed")
    subprocess.run(program, cwd=folder, check=True)
    with backtrail.open(Path(folder, "backtrail.db")) as store:
        print("finished:", store.run("report").outcome().result)
    print(", ".join(Path(folder, "calls.txt").read_text().splitlines()) + ": each once")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(work())
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
