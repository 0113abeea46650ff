"""Transcripts of Claude Code and the Claude Agent SDK: one line per entry, each naming its parent. Entries that are no
messages, such as attachments, are left out; the chain of parents goes through them.

The parents make a tree. A chain without a fork is one segment, so every fork in the conversation has a checkpoint to
start from; the head is the entry that the transcript names as its leaf, or else its last one. Entries of sub-agents are
sessions of their own, named `<session>/<agent>`.

One response of the model with several tool calls is several entries, and the parent of each result is the entry of its
own call: by parents alone, all results but one would be on side branches. So the entries of one response and their
results are made one chain, in the order of the file.
"""

from __future__ import annotations

from backtrail import message_shapes
from backtrail.importers.model import BadFile, FileContent, ForeignThread, Message, Segment
from backtrail.transcript_lines import is_bookkeeping


def recognises(content: FileContent) -> bool:
    return content.lines is not None and any(
        type(line.get("uuid")) is str
        and type(line.get("type")) is str
        and ("parentUuid" in line or "sessionId" in line)
        for _, line in content.lines
    )


def read(content: FileContent) -> list[ForeignThread]:
    lines = [line for _, line in content.lines or ()]
    entries: dict[str, Message] = {}
    for line in lines:
        if type(line.get("uuid")) is str:
            entries.setdefault(line["uuid"], line)  # a resumed session repeats what it began with
    if not entries:
        raise BadFile("none of its lines is an entry with a uuid")
    session = _session_id(content, entries)
    groups: dict[str, dict[str, Message]] = {}
    owners = _owners(entries)
    for uuid, entry in entries.items():
        groups.setdefault(owners[uuid], {})[uuid] = entry
    leaf = next((line["leafUuid"] for line in reversed(lines) if _is_leaf(line, entries)), None)
    title = next((line["summary"] for line in reversed(lines) if _is_title(line)), None)
    dropped = len(lines) - sum(not is_bookkeeping(entry) for entry in entries.values())
    notes = (*content.notes, *([f"{dropped} lines that are no messages were left out"] if dropped else ()))
    found = []
    for owner, group in groups.items():
        segments, head = _segments(group, leaf if leaf in group else next(reversed(group)))
        custom = {"title": title} if title and not owner else {}
        part = owner or (content.path.stem if content.path.stem.startswith("agent-") else "")
        id = f"{session}/{part}" if part else session
        found.append(
            ForeignThread(id, segments=tuple(segments), head=head, custom=custom, notes=() if owner else notes)
        )
    return found


def _session_id(content: FileContent, entries: dict[str, Message]) -> str:
    ids = [entry["sessionId"] for entry in entries.values() if type(entry.get("sessionId")) is str]
    return content.path.stem if content.path.stem in ids or not ids else str(ids[-1])


def _owners(entries: dict[str, Message]) -> dict[str, str]:
    """For each entry, the id of the sub-agent that wrote it; "" for the session itself. A sub-agent without an id is
    named after the first entry of its chain."""
    owners: dict[str, str] = {}
    for start in entries:
        chain: dict[str, None] = {}  # from the entry towards the first, up to one whose owner is known
        at = start
        while at not in owners and at not in chain:
            chain[at] = None
            entry, parent = entries[at], _parent(entries[at])
            if not entry.get("isSidechain"):
                owners[at] = ""
            elif type(entry.get("agentId")) is str:
                owners[at] = f"agent-{entry['agentId']}"
            elif type(parent) is str and parent in entries and entries[parent].get("isSidechain"):
                at = parent
            else:
                owners[at] = f"sidechain-{at}"
        owner = owners.get(at, f"sidechain-{at}")  # else the chain leads back into itself
        for uuid in chain:
            owners.setdefault(uuid, owner)
    return owners


def _parent(entry: Message) -> str | None:
    """The parent's uuid; after a compaction, which starts without a parent, that of the entry it continues."""
    uuid = entry.get("parentUuid") or entry.get("logicalParentUuid")
    return uuid if type(uuid) is str else None


def _is_leaf(line: Message, entries: dict[str, Message]) -> bool:
    leaf = line.get("leafUuid")
    return line.get("type") == "last-prompt" and type(leaf) is str and leaf in entries


def _is_title(line: Message) -> bool:
    return line.get("type") == "summary" and type(line.get("summary")) is str and bool(line["summary"])


def _segments(group: dict[str, Message], leaf: str) -> tuple[list[Segment], int]:
    """The entries' tree as segments, each after its parent, and the number of the segment that ends at `leaf`. Segments
    on the path to `leaf` come first, so that they follow each other without a branch."""
    parents = _parents(group)
    children: dict[str, list[str]] = {uuid: [] for uuid in group}
    for uuid, parent in parents.items():
        if parent is not None:
            children[parent].append(uuid)
    path = {leaf}
    at = parents[leaf]
    while at is not None:
        path.add(at)
        at = parents[at]
    segments: list[Segment] = []
    ends: dict[str, int] = {}  # the last entry of each segment
    for uuid in (*(one for one in group if one in path), *(one for one in group if one not in path)):
        parent = parents[uuid]
        if parent is not None and len(children[parent]) == 1 and parent != leaf:
            continue  # part of its parent's segment
        chain = [uuid]
        while len(children[chain[-1]]) == 1 and chain[-1] != leaf:
            chain.append(children[chain[-1]][0])
        after = None if parent is None else ends[parent]
        ends[chain[-1]] = len(segments)
        messages = [group[one] for one in chain if not is_bookkeeping(group[one])]
        segments.append(Segment(messages, after, replaces_all=parent is None and bool(segments)))
    return segments, ends[leaf]


class _Response:
    """One response of the model: its entries and the results of its calls, as one chain."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.last = ""
        self.open_calls: set[str] = set()  # calls without a result so far

    def includes(self, entry: Message) -> bool:
        """True if an entry is another part of this response, or the result of one of its calls."""
        if _response_id(entry) == self.id:
            return True
        results = message_shapes.results(entry)
        return bool(results) and not message_shapes.is_user_turn(entry) and self.open_calls.issuperset(results)

    def add(self, uuid: str, entry: Message) -> None:
        self.last = uuid
        self.open_calls |= set(message_shapes.calls(entry))
        self.open_calls -= set(message_shapes.results(entry))


def _response_id(entry: Message) -> str | None:
    message = entry.get("message")
    id = message.get("id") if type(message) is dict and message_shapes.role(entry) == "assistant" else None
    return id if type(id) is str else None


def _parents(group: dict[str, Message]) -> dict[str, str | None]:
    """The entry that each entry follows."""
    parents: dict[str, str | None] = {}
    responses: dict[str, _Response] = {}  # by entry
    for uuid, entry in group.items():
        # A parent that comes later in the file is ignored: it could close a circle.
        parent = _parent(entry)
        parent = parent if parent in parents else None
        response = responses.get(parent) if parent is not None else None
        if response is not None and response.includes(entry):
            parents[uuid] = response.last
        else:
            # An entry after one result follows all results of that response.
            follows = (
                response.last
                if response is not None and parent is not None and message_shapes.results(group[parent])
                else parent
            )
            parents[uuid] = follows
            id = _response_id(entry)
            response = _Response(id) if id is not None else None
        if response is not None:
            response.add(uuid, entry)
            responses[uuid] = response
    return parents
