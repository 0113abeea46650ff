"""What Codex publishes of its hooks, and what we send and read: its program carries the JSON schemas.

The other programs publish none for their hooks; that they take our answers is in `test_typed_commands`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from backtrail.agents.events import HOOK_EVENTS

from .programs import AgentHome, command
from .test_going_back import MakeHome, newest_session

RECORDED = Path(__file__).parents[1] / "coding_agents" / "payloads" / "codex.jsonl"
_TITLE = re.compile(rb'"title": "([a-z-]+\.command\.(?:input|output))"')
_BEGINNING = b'{\n  "$schema"'


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    """The schemas of Codex's hooks by title, as they are in its program."""
    data = Path(command(Path(os.environ["BACKTRAIL_TEST_PROGRAMS"]), "codex")[0]).read_bytes()
    found = {}
    for title in _TITLE.finditer(data):
        start = data.rindex(_BEGINNING, 0, title.start())
        text = data[start : start + 100_000].decode(errors="replace")
        found[title[1].decode()], _ = json.JSONDecoder().raw_decode(text)
    return found


def title(event: str) -> str:
    """The name of an event in the titles: `UserPromptSubmit` is `user-prompt-submit`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", event).lower()


def hook(home: AgentHome, payload: dict[str, Any]) -> str:
    """What the hook prints."""
    event = home.project.parent / "event.json"
    event.write_text(json.dumps(payload))
    return home.run("sh", "-c", f"exec backtrail hook codex < {event}").stdout


def test_every_answer_to_codex_is_as_its_schema_says(make_home: MakeHome, schemas: dict[str, Any]) -> None:
    home = make_home("codex")
    (home.project / "long").write_text("".join(f"{number}\n" for number in range(5000)))
    home.prompt("codex", "PROMPT-one RUN:seq 5000 9000 > long ENDRUN")
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    recorded = {line["hook_event_name"]: line for line in lines}
    session = newest_session(home)
    place = {"cwd": str(home.project), "session_id": session, "transcript_path": None}
    for words in ("log", "diff", "diff 1", "rewind 7", "rewind 1 --dry-run", "revert 1 -n", "rewind", "undo", "redo"):
        asked = {**recorded["UserPromptSubmit"], **place, "prompt": f"backtrail {words}", "turn_id": "another"}
        jsonschema.validate(asked, schemas["user-prompt-submit.command.input"])
        told = json.loads(hook(home, asked))
        assert told["decision"] == "block"
        jsonschema.validate(told, schemas["user-prompt-submit.command.output"])
    for event in HOOK_EVENTS["codex"]:
        if event in recorded:
            assert hook(home, {**recorded[event], **place, "turn_id": "one-more", "prompt": "go on"}) == ""


@pytest.mark.parametrize("event", HOOK_EVENTS["codex"])
def test_the_fields_that_we_read_are_those_that_codex_sends(event: str, schemas: dict[str, Any]) -> None:
    sent = schemas[f"{title(event)}.command.input"]
    needed = {"session_id", "cwd", "hook_event_name", "transcript_path"}
    needed |= {"turn_id"} if event in ("UserPromptSubmit", "Stop", "Interrupt") else set()
    needed |= {"prompt"} if event == "UserPromptSubmit" else set()
    assert needed <= set(sent["required"])
    assert sent["properties"]["hook_event_name"]["const"] == event


def test_recorded_payloads_are_as_the_schemas_of_this_version_say(schemas: dict[str, Any]) -> None:
    for line in map(json.loads, RECORDED.read_text().splitlines()):
        jsonschema.validate(line, schemas[f"{title(line['hook_event_name'])}.command.input"])
