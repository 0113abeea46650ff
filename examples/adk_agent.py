"""An agent of Google's ADK whose sessions, state and artifacts are on backtrail.

    python examples/adk_agent.py

It needs the extra `adk`. It prints:

    first process:  You have asked 1 question.
    second process: You have asked 2 questions.
    4 events; the state of the user: {'user:last_answer': 'You have asked 2 questions.'}
    note.txt, version 0: remember the milk
    what the second question added: 2 events
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.genai import types

import backtrail
from backtrail.adapters.adk import BacktrailArtifactService, BacktrailSessionService


class Counting(BaseLlm):
    """A model that answers from what it is given."""

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002
    ) -> AsyncGenerator[LlmResponse, None]:
        asked = sum(content.role == "user" for content in llm_request.contents)
        text = f"You have asked {asked} question{'s' if asked > 1 else ''}."
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


def make_runner(store: backtrail.Store) -> Runner:
    agent = LlmAgent(name="counting", model=Counting(model="scripted"), output_key="user:last_answer")
    return Runner(
        app_name="shop",
        agent=agent,
        session_service=BacktrailSessionService(store),
        artifact_service=BacktrailArtifactService(store),
    )


async def ask(runner: Runner, text: str) -> str:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    answer = ""
    async for event in runner.run_async(user_id="ann", session_id="s-1", new_message=message):
        answer = event.content.parts[0].text
    return answer


async def main(path: Path) -> None:
    who = {"app_name": "shop", "user_id": "ann", "session_id": "s-1"}
    with backtrail.open(path) as store:
        runner = make_runner(store)
        await runner.session_service.create_session(**who)
        print("first process: ", await ask(runner, "hello"))
    with backtrail.open(path) as store:  # as if in another process
        runner = make_runner(store)
        thread = store.thread("adk/shop/ann/s-1")  # an ADK session is a backtrail thread
        before = thread.get("@")
        print("second process:", await ask(runner, "hello again"))
        session = await runner.session_service.get_session(**who)
        user = {key: value for key, value in session.state.items() if key.startswith("user:")}
        print(f"{len(session.events)} events; the state of the user: {user}")

        note = types.Part(text="remember the milk")
        version = await runner.artifact_service.save_artifact(**who, filename="note.txt", artifact=note)
        loaded = await runner.artifact_service.load_artifact(**who, filename="note.txt")
        print(f"note.txt, version {version}: {loaded.text}")
        print("what the second question added:", thread.step - before.step, "events")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder, "backtrail.db")))
