"""What the API does: one method per operation, over the public API of a store.

Methods block; the application calls them in a thread. Checkpoints never change, so what was worked out about one is
kept: the graph of a thread until its head moves, what a checkpoint added for as long as there is room.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from backtrail import Checkpoint, InvalidInput, Outline, Part, Store, Thread, ThreadInfo, ThreadNotFound
from backtrail.render import checkpoint_text
from backtrail.render.change_summary import Added, added
from backtrail.render.conversation import conversation_key, read
from backtrail.render.graph import GraphRow, arrange, width
from backtrail.render.json_records import CheckpointJson, change_json, checkpoint_json, fork_json, thread_json
from backtrail.render.jsonable import clip, from_json, to_json
from backtrail.render.refs import resolve
from backtrail.render.undo import take_back
from backtrail.server import requests as ask
from backtrail.server import responses as tell

if TYPE_CHECKING:
    from backtrail.workspace import Change

SHOWN_TEXT = 20_000  # characters of one text, unless it is asked for whole
SHOWN_VALUE = 2_000
_GRAPHS = 16
_ADDED = 20_000
_SCAN = 500
_POINTS = 400
_SHOWN_FILES = 200


class RecentResults:
    """The newest `most` things that were worked out, by key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Any:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Any, value: Any) -> None:
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


class Handlers:
    """Answers questions about one store."""

    def __init__(self, store: Store, *, name: str, read_only: bool) -> None:
        self.store = store
        self.name = name
        self.read_only = read_only
        self._graphs = RecentResults(_GRAPHS)
        self._added = RecentResults(_ADDED)

    # -- the store ----------------------------------------------------------------------------------------------------

    def about(self, _: ask.AskNothing) -> tell.About:
        """The store: its name, what it holds, whether it can be changed from here."""
        from backtrail import __version__

        return {
            "name": self.name,
            "version": __version__,
            "read_only": self.read_only,
            "stats": self.store.stats(survey=False),
        }

    def threads(self, asked: ask.AskThreads) -> tell.Threads:
        """Threads, newest first; `next` is the `after` of the next page."""
        wanted = asked.search.casefold()
        found: list[ThreadInfo] = []
        after = asked.after
        while len(found) <= asked.limit:
            size = _SCAN if wanted else asked.limit + 1
            page = self.store.threads(asked.prefix, limit=size, after=after, kind=asked.kind, newest_first=True)
            found += [info for info in page if wanted in info.id.casefold()]
            if len(page) < size:
                break
            after = page[-1].id
        shown = found[: asked.limit]
        more = len(found) > asked.limit
        return {"threads": [thread_json(info) for info in shown], "next": shown[-1].id if more else None}

    def info(self, thread: str) -> ThreadInfo:
        """The line of a thread."""
        for info in self.store.threads(thread, limit=1):
            if info.id == thread:
                return info
        raise ThreadNotFound(thread)

    # -- one thread ---------------------------------------------------------------------------------------------------

    def thread(self, asked: ask.AskThread) -> tell.Thread:
        """A thread: its line, its head and its relatives."""
        handle = self._handle(asked.thread)
        info = self.info(asked.thread)
        return {
            "thread": thread_json(info),
            "head": checkpoint_json(handle.get(info.head)),
            "forks": [fork_json(fork) for fork in handle.forks()],
        }

    def history(self, asked: ask.AskHistory) -> tell.History:
        """A page of the history as rows of a graph, newest first."""
        handle = self._handle(asked.thread)
        info, rows, lanes = self._graph(asked.thread, asked.trail)
        page = rows[asked.start : asked.start + asked.limit]
        outlines: dict[str, Outline] = {}
        return {
            "thread": thread_json(info),
            "total": len(rows),
            "start": asked.start,
            "lanes": lanes,
            "rows": [self._row(handle, row, outlines) for row in page],
        }

    def sizes(self, asked: ask.AskThread) -> tell.Sizes:
        """For a chart of the way to the head: how much steps wrote, and how large the state was."""
        picked = [row.checkpoint for row in reversed(self._graph(asked.thread, False)[1]) if row.on_trail]
        share = -(-len(picked) // _POINTS)  # a long way is told in stretches, each by the step that wrote most
        stretches = [picked[i : i + share] for i in range(0, len(picked), share)]
        largest = [max(stretch, key=lambda c: c.written) for stretch in stretches]
        return {
            "steps": len(picked),
            "written": sum(c.written for c in picked),
            "size": picked[-1].size,
            "points": [[c.step, c.written, c.size] for c in largest],
        }

    def _graph(self, thread: str, trail: bool) -> tuple[ThreadInfo, list[GraphRow], int]:
        info = self.info(thread)
        key = (thread, trail)
        kept = self._graphs.get(key)
        if kept is not None and kept[0] == info:
            return kept  # type: ignore[no-any-return]  # what was put there two lines below
        rows = arrange(self._handle(thread).history(all=not trail), info.head)
        self._graphs.put(key, (info, rows, width(rows)))
        return info, rows, width(rows)

    def _row(self, handle: Thread[Any], row: GraphRow, outlines: dict[str, Outline]) -> tell.Row:
        checkpoint = row.checkpoint
        what: Added | None = self._added.get(checkpoint.id)
        if what is None:
            what = added(handle, checkpoint, outlines)
            self._added.put(checkpoint.id, what)
        return {
            **checkpoint_json(checkpoint),
            "lane": row.lane,
            "joins": list(row.joins),
            "through": list(row.through),
            "open": row.open,
            "on_trail": row.on_trail,
            "added": what.what,
            "preview": what.preview,
            "role": what.role,
        }

    # -- one checkpoint -----------------------------------------------------------------------------------------------

    def checkpoint(self, asked: ask.AskCheckpoint) -> CheckpointJson:
        """One checkpoint, by any of its names."""
        return checkpoint_json(self._at(asked))

    def messages(self, asked: ask.AskMessages) -> tell.Messages:
        """A stretch of the conversation at a checkpoint. `key` is null where the state has none."""
        handle, checkpoint = self._handle(asked.thread), self._at(asked)
        outline = handle.outline(at=checkpoint.id)
        key = conversation_key(outline)
        if key is None:
            return {"key": None, "total": 0, "start": 0, "messages": []}
        total = next(part.count or 0 for part in outline.parts if part.name == key)
        start = max(0, total - asked.limit) if asked.start is None else asked.start
        parts = handle.outline([key], at=checkpoint.id, start=start, stop=start + asked.limit).parts
        limit = 10**9 if asked.whole else SHOWN_TEXT
        shown = [clip(msgspec.to_builtins(read(part.value)), limit) | {"index": part.name} for part in parts]
        return {"key": key, "total": total, "start": start, "messages": shown}

    def state(self, asked: ask.AskState) -> tell.State:
        """One level of the state at a checkpoint. An entry that is not `known` is too large to be shown at once: ask
        for its own path."""
        handle, checkpoint = self._handle(asked.thread), self._at(asked)
        path = _path(asked.path)
        limit = 10**9 if asked.whole else SHOWN_VALUE
        found = handle.outline(path, at=checkpoint.id, start=asked.start, stop=asked.start + asked.limit)
        return {
            "path": path,
            "kind": found.kind,
            "type": found.type,
            "size": found.size,
            "count": found.count,
            "start": found.start,
            "entries": [self._entry(part, limit) for part in found.parts],
            "value": clip(to_json(found.value), SHOWN_TEXT if limit == SHOWN_VALUE else limit),
        }

    def _entry(self, part: Part, limit: int) -> tell.StateEntry:
        simple = part.known and part.kind not in ("dict", "list")
        return {
            "name": part.name,
            "kind": part.kind,
            "type": part.type,
            "size": part.size,
            "count": part.count,
            "known": simple,
            "value": clip(to_json(part.value), limit) if simple else None,
        }

    def diff(self, asked: ask.AskDiff) -> tell.Difference:
        """What changed between two checkpoints; `total` may be more than the changes given."""
        handle = self._handle(asked.thread)
        found = handle.diff(resolve(handle, asked.a), resolve(handle, asked.b))
        changes = [clip(change_json(change), SHOWN_VALUE) for change in found.changes[: asked.limit]]
        return {
            "a": checkpoint_json(found.a),
            "b": checkpoint_json(found.b),
            "total": len(found.changes),
            "changes": changes,
        }

    def files(self, asked: ask.AskFiles) -> tell.Files:
        """What changed in the directory up to a checkpoint, file by file."""
        handle, checkpoint = self._handle(asked.thread), self._at(asked)
        if checkpoint.files is None:
            return {"snapshot": None, "base": None, "root": None, "total": 0, "changes": []}
        base = resolve(handle, asked.base) if asked.base else self._snapshot_before(asked.thread, checkpoint)
        workspace = handle.workspace(checkpoint)
        changes = workspace.diff(base, checkpoint).changes if base is not None else ()
        return {
            "snapshot": checkpoint.files,
            "base": checkpoint_json(base) if base is not None else None,
            "root": workspace.root,
            "total": len(changes),
            "changes": _file_changes(changes[: asked.limit]),
        }

    def _snapshot_before(self, thread: str, checkpoint: Checkpoint) -> Checkpoint | None:
        """The nearest checkpoint before this one that has files."""
        known = {row.checkpoint.id: row.checkpoint for row in self._graph(thread, False)[1]}
        at = known.get(checkpoint.parent_id or "")
        while at is not None and at.files is None:
            at = known.get(at.parent_id or "")
        return at

    def export(self, asked: ask.AskExport) -> tuple[str, str]:
        """A checkpoint as a file: (media type, text)."""
        handle = self._handle(asked.thread)
        return checkpoint_text.MEDIA_TYPES[asked.form], checkpoint_text.write(
            self.store, handle, self._at(asked), asked.form
        )

    # -- changing -----------------------------------------------------------------------------------------------------

    def save(self, asked: ask.Save) -> CheckpointJson:
        """Save a whole state; only what changed is written."""
        handle = self._handle(asked.thread)
        return checkpoint_json(handle.save(from_json(asked.state), **self._facts(handle, asked)))

    def append(self, asked: ask.Append) -> CheckpointJson:
        """Add items at the end of a list of the state, whatever is in it."""
        items, facts = from_json(asked.items), _facts(asked)
        plain = facts == _facts(ask.Append(thread=asked.thread, items=[]))
        if plain and asked.key == "messages" and self._kind(asked.thread) == "session":
            saved = self.store.session(asked.thread).extend(items)  # counts the user's turns as well
            if saved is not None:
                return checkpoint_json(saved)
        return checkpoint_json(self._handle(asked.thread).append(asked.key, items, **facts))

    def update(self, asked: ask.Update) -> CheckpointJson:
        """Set some top-level keys of the state."""
        handle = self._handle(asked.thread)
        return checkpoint_json(handle.update(from_json(asked.changes), **self._facts(handle, asked)))

    def fork(self, asked: ask.ForkTo) -> tell.Forked:
        """Start a new thread at a checkpoint."""
        made = self._handle(asked.thread).fork(asked.to, at=self._at(asked))
        return {"thread": thread_json(self.info(made.id))}

    def rewind(self, asked: ask.Rewind) -> tell.Rewound:
        """Move the head. `left` are the checkpoints no longer on the way to it; they stay, and `undo` goes back."""
        handle = self._handle(asked.thread)
        target = resolve(handle, asked.at)
        _, rows, _ = self._graph(asked.thread, False)
        parents = {row.checkpoint.id: row.checkpoint.parent_id for row in rows}
        keep: set[str] = set()
        at: str | None = target.id
        while at is not None and at not in keep:
            keep.add(at)
            at = parents.get(at)
        left = [row.checkpoint.id for row in rows if row.on_trail and row.checkpoint.id not in keep]
        changes = handle.workspace(target).restore(target, dry_run=True).changes if asked.files else ()
        if not asked.dry_run:
            handle.rewind(target, files=asked.files)
        return {
            "head": checkpoint_json(target),
            "left": left,
            "files": _file_changes(changes[:_SHOWN_FILES]),
            "done": not asked.dry_run,
        }

    def undo(self, asked: ask.Undo) -> tell.Undone:
        """Take back the last move of the head; with `files`, the newest restore of its directory as well."""
        return {"head": checkpoint_json(take_back(self._handle(asked.thread), files=asked.files))}

    def annotate(self, asked: ask.Annotate) -> CheckpointJson:
        """Label, tags and custom fields of a checkpoint."""
        given = {"label": asked.label, "tags": asked.tags, "custom": asked.custom}
        said = {name: from_json(value) for name, value in given.items() if value is not msgspec.UNSET}
        return checkpoint_json(self._handle(asked.thread).annotate(self._at(asked), **said))

    def delete(self, asked: ask.Delete) -> tell.Deleted:
        """Delete a thread, or one checkpoint of it."""
        handle = self._handle(asked.thread)
        handle.delete(resolve(handle, asked.at) if asked.at is not None else None)
        return {"deleted": asked.thread, "at": asked.at}

    # -- parts --------------------------------------------------------------------------------------------------------

    def _handle(self, thread: str) -> Thread[Any]:
        return self.store.thread(thread)

    def _kind(self, thread: str) -> str | None:
        found = self.store.threads(thread, limit=1)
        return found[0].kind if found and found[0].id == thread else None

    def _at(self, asked: ask.AskCheckpoint) -> Checkpoint:
        return resolve(self._handle(asked.thread), asked.at)

    def _facts(self, handle: Thread[Any], asked: ask.Facts) -> dict[str, Any]:
        """Over HTTP there is no handle that remembers what was loaded: a save that replaces says what it replaces."""
        if asked.expect is msgspec.UNSET and handle.exists():
            raise InvalidInput("say which head this replaces: expect=<checkpoint id>, or use append")
        return _facts(asked)


def _facts(asked: ask.Facts) -> dict[str, Any]:
    facts: dict[str, Any] = {"label": asked.label, "tags": asked.tags, "custom": from_json(asked.custom)}
    return facts if asked.expect is msgspec.UNSET else facts | {"expect": asked.expect}


def _file_changes(changes: Sequence[Change]) -> list[tell.FileChange]:
    return [
        {"path": c.path, "kind": c.kind, "unsaved": c.unsaved, "text": clip(c.text, SHOWN_TEXT) if c.text else None}
        for c in changes
    ]


def _path(text: str) -> list[str | int]:
    try:
        return msgspec.json.decode(text, type=list[str | int])
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"path must be a JSON list of keys and numbers: {error}") from error
