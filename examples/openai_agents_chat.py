"""An agent of the OpenAI Agents SDK whose session is on backtrail: history, a way back, and usage.

    python examples/openai_agents_chat.py

It needs the extra `openai-agents`. It prints:

    ann: It is 3 degrees in Oslo.
    ann: It is 21 degrees in Rome.
    8 items
    after the rewind: 4 items
    ann: You are welcome.
    the way that was left is still there: 8 items at step 8
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import backtrail
from backtrail.adapters.openai_agents import BacktrailSession

OFFLINE = RunConfig(tracing_disabled=True)


@function_tool
def weather(city: str) -> str:
    """Tells the temperature in a city."""
    return f"{({'Oslo': 3, 'Rome': 21})[city]} degrees"


async def main(path: Path) -> None:
    model = ScriptedModel(
        [
            [function_call("weather", {"city": "Oslo"}, call_id="call-1")],
            [assistant_message("It is 3 degrees in Oslo.")],
            [function_call("weather", {"city": "Rome"}, call_id="call-2")],
            [assistant_message("It is 21 degrees in Rome.")],
            [assistant_message("You are welcome.")],
        ]
    )
    agent = Agent(name="guide", model=model, tools=[weather])
    with backtrail.open(path) as store:
        session = BacktrailSession(store, "ann")

        async def ask(text: str) -> None:
            result = await Runner.run(agent, text, session=session, run_config=OFFLINE)
            await session.store_run_usage(result)
            print("ann:", result.final_output)

        await ask("How is the weather in Oslo?")
        first = session.session.get("@")  # the backtrail session behind it
        await ask("And in Rome?")
        print(len(await session.get_items()), "items")

        left = session.session.get("@")
        await session.rewind(first)
        print("after the rewind:", len(await session.get_items()), "items")
        await ask("Thank you.")
        there = session.session.messages(at=left)
        print(f"the way that was left is still there: {len(there)} items at step {left.step}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder, "backtrail.db")))
