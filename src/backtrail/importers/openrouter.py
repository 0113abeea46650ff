"""openrouter-agent-sdk's sessions: all of them in one JSON file, with a copy of the messages per snapshot.

The copies become checkpoints tied to their message ids, so that `session.rewind(message_id)` finds them.
"""

from __future__ import annotations

from typing import Any

from backtrail.importers.model import BadFile, FileContent, ForeignThread, Segment
from backtrail.model import MAX_GIVEN


def recognises(content: FileContent) -> bool:
    return type(content.value) is dict and type(content.value.get("sessions")) is dict


def read(content: FileContent) -> list[ForeignThread]:
    if not recognises(content):
        raise BadFile("it has no sessions")
    return [_session(id, value) for id, value in content.value["sessions"].items()]


def _session(id: str, value: Any) -> ForeignThread:
    if type(value) is not dict:
        return ForeignThread(id, notes=("it is no JSON object: imported as an empty session",))
    notes: list[str] = []
    copies = _mapping(value.get("Checkpoints"))
    kept = {name: messages or [] for name, messages in copies.items() if name and _is_message_list(messages or [])}
    if len(kept) < len(copies):
        notes.append(f"{len(copies) - len(kept)} snapshots are not lists of objects: left out")
    segments = [
        Segment(messages, replaces_all=True, snapshot=name)
        for name, messages in sorted(kept.items(), key=lambda pair: len(pair[1]))
    ]
    messages = value.get("Messages") or []
    if not _is_message_list(messages):
        messages = []
        notes.append("its messages are not a list of objects: left out")
    segments.append(Segment(messages, replaces_all=True))
    files = _mapping(value.get("FileCheckpoints"))
    if files:
        notes.append(f"{len(files)} copies of files are not part of a conversation: left out")
    turns = value.get("UserTurns")
    return ForeignThread(
        value["ID"] if type(value.get("ID")) is str and value["ID"] else id,
        segments=tuple(segments),
        user_turns=turns if type(turns) is int and 0 <= turns < MAX_GIVEN else None,
        custom={name.lower(): value[name] for name in ("CreatedAt", "UpdatedAt") if type(value.get(name)) is str},
        notes=tuple(notes),
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _is_message_list(value: Any) -> bool:
    return type(value) is list and all(type(message) is dict for message in value)
