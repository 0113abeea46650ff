"""backtrail's own JSONL export: a header line, then one message per line."""

from __future__ import annotations

from backtrail.encode.tagged_json import from_json
from backtrail.errors import InvalidInput
from backtrail.export import FORMAT_KEY
from backtrail.importers.model import BadFile, FileContent, ForeignThread, Segment, check_run
from backtrail.model import MAX_GIVEN


def recognises(content: FileContent) -> bool:
    return content.lines is not None and FORMAT_KEY in content.lines[0][1]


def read(content: FileContent) -> list[ForeignThread]:
    if not content.lines or FORMAT_KEY not in content.lines[0][1]:
        raise BadFile("its first line does not say that backtrail wrote it")
    header = content.lines[0][1]
    if header[FORMAT_KEY] != 1:
        raise BadFile(f"it was written by a newer backtrail (format {header[FORMAT_KEY]!r})")
    try:
        messages = [from_json(line) for _, line in content.lines[1:]]
        fields = from_json(header.get("fields") or {})
        summary = from_json(header.get("summary"))
    except InvalidInput as error:
        raise BadFile(str(error)) from error
    if type(fields) is not dict or not all(type(message) is dict for message in messages):
        raise BadFile("what it holds is no session and no run")
    id = header.get("id")
    if type(id) is not str or not id:
        raise BadFile("its first line has no id")
    if header.get("kind") == "run":
        return [ForeignThread(id, kind="run", fields=check_run({**fields, "messages": messages}), notes=content.notes)]
    turns = header.get("user_turns")
    return [
        ForeignThread(
            id,
            segments=(Segment(messages),),
            summary=summary if type(summary) is str else "",
            user_turns=turns if type(turns) is int and 0 <= turns < MAX_GIVEN else None,
            notes=content.notes,
        )
    ]
