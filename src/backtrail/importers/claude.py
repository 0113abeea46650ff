"""Transcripts of Claude Code and the Claude Agent SDK: one line per entry, each naming its parent.

The parents make a tree. A chain without a fork is one stretch, so every fork in the conversation has a checkpoint to
hang on; the entry that the transcript names as its leaf, or else its last one, is where the session stands. Entries of
sub-agents are sessions of their own, named `<session>/<agent>`.

One answer of the model with several tool calls is several entries, and each result hangs on the entry of its own call:
followed by parents alone, all results but one would be off the way. So the entries of one answer and their results are
put in a row, in the order of the file.
"""

from __future__ import annotations

from typing import Any

from backtrail import message_shapes
from backtrail.importers.model import BadFile, Content, Found, Message, MessageRun


def recognises(content: Content) -> bool:
    return content.lines is not None and any(
        type(line.get("uuid")) is str
        and type(line.get("type")) is str
        and ("parentUuid" in line or "sessionId" in line)
        for _, line in content.lines
    )


def read(content: Content) -> list[Found]:
    lines = [line for _, line in content.lines or ()]
    entries: dict[str, Message] = {}
    for line in lines:
        if type(line.get("uuid")) is str:
            entries.setdefault(line["uuid"], line)  # a resumed session repeats what it began with
    if not entries:
        raise BadFile("none of its lines is an entry with a uuid")
    session = _session_id(content, entries)
    groups: dict[str, dict[str, Message]] = {}
    for uuid, entry in entries.items():
        groups.setdefault(_owner(entry, entries), {})[uuid] = entry
    leaf = next((line["leafUuid"] for line in reversed(lines) if _is_leaf(line, entries)), None)
    title = next((line["summary"] for line in reversed(lines) if _is_title(line)), None)
    dropped = len(lines) - len(entries)
    notes = (*content.notes, *([f"{dropped} lines that are no entries were left out"] if dropped else ()))
    found = []
    for owner, group in groups.items():
        stretches, head = _stretches(group, leaf if leaf in group else next(reversed(group)))
        facts = {"title": title} if title and not owner else {}
        part = owner or (content.path.stem if content.path.stem.startswith("agent-") else "")
        id = f"{session}/{part}" if part else session
        found.append(Found(id, stretches=tuple(stretches), head=head, facts=facts, notes=() if owner else notes))
    return found


def _session_id(content: Content, entries: dict[str, Message]) -> str:
    told = [entry["sessionId"] for entry in entries.values() if type(entry.get("sessionId")) is str]
    return content.path.stem if content.path.stem in told or not told else str(told[-1])


def _owner(entry: Message, entries: dict[str, Message]) -> str:
    """The sub-agent that wrote an entry, "" for the session itself."""
    if not entry.get("isSidechain"):
        return ""
    if type(entry.get("agentId")) is str:
        return f"agent-{entry['agentId']}"
    seen = set()
    while (parent := _parent(entry)) in entries and parent not in seen and entries[parent].get("isSidechain"):
        seen.add(parent)
        entry = entries[parent]
    return f"sidechain-{entry['uuid']}"


def _parent(entry: Message) -> Any:
    """The entry before; after a compaction, which begins anew, the one that it continues."""
    return entry.get("parentUuid") or entry.get("logicalParentUuid")


def _is_leaf(line: Message, entries: dict[str, Message]) -> bool:
    return line.get("type") == "last-prompt" and line.get("leafUuid") in entries


def _is_title(line: Message) -> bool:
    return line.get("type") == "summary" and type(line.get("summary")) is str and bool(line["summary"])


def _stretches(group: dict[str, Message], leaf: str) -> tuple[list[MessageRun], int]:
    """The group's tree as stretches, each after the one it hangs on, and the stretch that ends at `leaf`. Those on the
    way to it come first, so that they go on from each other without a branch."""
    parents = _parents(group)
    children: dict[str, list[str]] = {uuid: [] for uuid in group}
    for uuid, parent in parents.items():
        if parent is not None:
            children[parent].append(uuid)
    way = {leaf}
    at = parents[leaf]
    while at is not None:
        way.add(at)
        at = parents[at]
    stretches: list[MessageRun] = []
    ends: dict[str, int] = {}  # the last entry of each stretch
    for uuid in (*(one for one in group if one in way), *(one for one in group if one not in way)):
        parent = parents[uuid]
        if parent is not None and len(children[parent]) == 1 and parent != leaf:
            continue  # it goes on in the stretch of its parent
        chain = [uuid]
        while len(children[chain[-1]]) == 1 and chain[-1] != leaf:
            chain.append(children[chain[-1]][0])
        after = None if parent is None else ends[parent]
        ends[chain[-1]] = len(stretches)
        stretches.append(MessageRun([group[one] for one in chain], after, whole=parent is None and bool(stretches)))
    return stretches, ends[leaf]


class _Answer:
    """One answer of the model: its entries and the results of its calls, in a row."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.tip = ""
        self.waiting: set[str] = set()  # calls without a result so far

    def takes(self, entry: Message) -> bool:
        """Whether an entry is another part of this answer, or the result of one of its calls."""
        if _answer_id(entry) == self.id:
            return True
        answered = message_shapes.results(entry)
        return bool(answered) and not message_shapes.is_user_turn(entry) and self.waiting.issuperset(answered)

    def add(self, uuid: str, entry: Message) -> None:
        self.tip = uuid
        self.waiting |= set(message_shapes.calls(entry))
        self.waiting -= set(message_shapes.results(entry))


def _answer_id(entry: Message) -> str | None:
    message = entry.get("message")
    id = message.get("id") if type(message) is dict and message_shapes.role(entry) == "assistant" else None
    return id if type(id) is str else None


def _parents(group: dict[str, Message]) -> dict[str, str | None]:
    """What each entry follows."""
    parents: dict[str, str | None] = {}
    answers: dict[str, _Answer] = {}  # by entry
    for uuid, entry in group.items():
        # A parent that comes later in the file would close a circle sooner or later: it is no parent.
        parent = _parent(entry)
        parent = parent if parent in parents else None
        answer = answers.get(parent) if parent is not None else None
        if answer is not None and answer.takes(entry):
            parents[uuid] = answer.tip
        else:
            # What comes after a result comes after all results of that answer.
            follows = (
                answer.tip
                if answer is not None and parent is not None and message_shapes.results(group[parent])
                else parent
            )
            parents[uuid] = follows
            id = _answer_id(entry)
            answer = _Answer(id) if id is not None else None
        if answer is not None:
            answer.add(uuid, entry)
            answers[uuid] = answer
    return parents
