"""The Claude Agent SDK with its sessions on backtrail, and a project that goes back with the conversation.

    python examples/claude_agent.py

`session_store=BacktrailSessionStore(store)` is the only option that the SDK needs. So that this runs without Claude,
a key or a network, `Scripted` takes the place of the program that the SDK starts: it speaks the SDK's own protocol, and
changes a file as a shell command would. Without `transport=`, the same program talks to Claude. It needs the extra
`claude`. It prints:

    Claude: I have written main.py.
    Claude: I have tidied up.
    main.py is broken, and the store has 4 entries
    after the rewind main.py works, and the store has 2 entries
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    TextBlock,
    Transport,
    project_key_for_directory,
    query,
)

import backtrail
from backtrail.adapters.claude import BacktrailSessionStore

SESSION = "0b1f6d3e-1111-4111-8111-000000000001"


async def ask(text: str, options: ClaudeAgentOptions, transport: Transport) -> None:
    async for message in query(prompt=text, options=options, transport=transport):
        if isinstance(message, AssistantMessage):
            print("Claude:", *(block.text for block in message.content if isinstance(block, TextBlock)))


async def main(folder: Path) -> None:
    project = folder / "project"
    project.mkdir()
    with backtrail.open(folder / "backtrail.db") as store:
        transcripts = BacktrailSessionStore(store)
        key: Any = {"project_key": project_key_for_directory(project), "session_id": SESSION}
        session = transcripts.session(key)
        files = store.workspace(project)

        def show(when: str = "") -> None:
            text = (project / "main.py").read_text()
            print(f"{when}main.py {text}, and the store has {len(session.messages())} entries")

        options = ClaudeAgentOptions(
            cwd=project, session_store=transcripts, env={"CLAUDE_CONFIG_DIR": str(folder / "config")}
        )
        await ask("Write main.py.", options, Scripted(options, "works", "I have written main.py."))
        good = session.save(label="good", files=files)  # the conversation so far, and the directory

        await ask("Tidy up.", options, Scripted(options, "is broken", "I have tidied up."))
        show()
        session.rewind(at=good, files=True)
        show("after the rewind ")


class Scripted(Transport):
    """In the place of Claude Code: one turn, in which it writes a file."""

    def __init__(self, options: ClaudeAgentOptions, text: str, reply: str) -> None:
        self._file, self._text, self._reply = Path(str(options.cwd), "main.py"), text, reply
        projects = Path(options.env["CLAUDE_CONFIG_DIR"], "projects")
        self._transcript = projects / project_key_for_directory(options.cwd) / f"{SESSION}.jsonl"
        self._written: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def connect(self) -> None:
        pass

    async def write(self, data: str) -> None:
        self._written.put_nowait(json.loads(data))

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        begin = await self._written.get()
        yield {
            "type": "control_response",
            "response": {"subtype": "success", "request_id": begin["request_id"], "response": {}},
        }
        prompt = (await self._written.get())["message"]
        yield self._mirror("user", prompt)
        self._file.write_text(self._text)
        content = [{"type": "text", "text": self._reply}]
        reply = {"role": "assistant", "model": "scripted", "content": content}
        yield self._mirror("assistant", reply)
        yield {"type": "assistant", "message": reply, "session_id": SESSION, "parent_tool_use_id": None}
        yield {
            "type": "result",
            "subtype": "success",
            "duration_ms": 1,
            "duration_api_ms": 1,
            "is_error": False,
            "num_turns": 1,
            "session_id": SESSION,
        }

    def _mirror(self, type: str, message: dict[str, Any]) -> dict[str, Any]:
        entry = {"type": type, "uuid": str(uuid.uuid4()), "message": message}
        return {"type": "transcript_mirror", "filePath": str(self._transcript), "entries": [entry]}

    async def close(self) -> None:
        pass

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None:
        pass


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
