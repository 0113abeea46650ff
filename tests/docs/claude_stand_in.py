"""In the place of Claude Code, for docs/how-to/rewind-a-coding-agent.md: it runs the hooks in its settings, writes a
transcript in Claude's form, and changes files. `make test-agents` does the same with the real program."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from backtrail.agents import hook_log

SESSION = "4fd6a2b0-92c1-4f5e-8f0d-6a3be5b1c7a2"
CONFIG = Path.home() / ".claude"
TRANSCRIPT = CONFIG / "projects" / "project" / f"{SESSION}.jsonl"


def tell(event: str, **fields: Any) -> None:
    """Run the hooks of an event, as the settings say."""
    told = {"session_id": SESSION, "transcript_path": str(TRANSCRIPT), "cwd": str(Path.cwd()), "hook_event_name": event}
    settings = json.loads((CONFIG / "settings.json").read_text())
    for entry in settings["hooks"].get(event, []):
        for hook in entry["hooks"]:
            payload = json.dumps({**told, **fields}).encode()
            subprocess.run(hook["command"], shell=True, input=payload, check=True, stdout=subprocess.DEVNULL)


def note(kind: str, content: Any, **fields: Any) -> None:
    """Add a line to the transcript."""
    lines = TRANSCRIPT.read_text().splitlines() if TRANSCRIPT.exists() else []
    parent = json.loads(lines[-1])["uuid"] if lines else None
    entry = {"type": kind, "uuid": str(uuid.uuid4()), "parentUuid": parent, "sessionId": SESSION}
    TRANSCRIPT.parent.mkdir(parents=True, exist_ok=True)
    with TRANSCRIPT.open("a") as file:
        file.write(json.dumps({**entry, "message": {"role": kind, "content": content}, **fields}) + "\n")


def main(prompt: str) -> None:
    if not TRANSCRIPT.exists():
        tell("SessionStart", source="startup")
    id = str(uuid.uuid4())
    tell("UserPromptSubmit", prompt=prompt, prompt_id=id)
    note("user", prompt, promptId=id)
    if "greets" in prompt:
        Path("greet.py").write_text('def greet(name):\n    return f"Hello, {name}!"\n')
        answer = "I have written greet.py."
    else:
        subprocess.run(["rm", "greet.py"], check=True)  # as a shell command of an agent does
        answer = "I have deleted greet.py, which is as short as it gets."
    note("assistant", [{"type": "text", "text": answer}])
    events = len(hook_log.read())
    tell("Stop", prompt_id=id)
    while len(hook_log.read()) == events:  # it is saved in the background, and the reader types no faster than that
        time.sleep(0.01)
    print(answer)


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print("2.1.326 (Claude Code)")
    else:
        main(sys.argv[-1])
