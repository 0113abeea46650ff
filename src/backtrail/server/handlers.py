"""The operations of the API: one method each, over the public API of a store.

Methods block; the application calls them in threads. What takes more than a call or two has a file of its own: the
list of threads, the list of steps, conversations, turns, comparisons, runs, health.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from backtrail import (
    Checkpoint,
    InvalidInput,
    NoDirectory,
    Store,
    Thread,
    ThreadInfo,
    ThreadNotFound,
)
from backtrail.render.checkpoint_export import MEDIA_TYPES, export_checkpoint
from backtrail.render.graph import ancestry
from backtrail.render.head_moves import left_behind, redo, undo
from backtrail.render.json_records import CheckpointJson, change_json, checkpoint_json, fork_json, thread_json
from backtrail.render.jsonable import from_json, to_json, truncate
from backtrail.render.message_images import Image
from backtrail.server import comparing, finding, requests, responses
from backtrail.server.conversation import Conversations
from backtrail.server.conversation_responses import ConversationResponse, MessagesResponse
from backtrail.server.file_changes import file_changes_json, restore_json
from backtrail.server.health import Health
from backtrail.server.history_cache import HistoryCache
from backtrail.server.runs import Runs
from backtrail.server.state_levels import level, parse_path, replaced, value_at
from backtrail.server.step_list import StepList
from backtrail.server.thread_listing import ThreadListing
from backtrail.server.turn_reader import TurnReader

if TYPE_CHECKING:
    from backtrail.workspace import Changes, Workspace

_SHOWN_VALUE = 2_000
_SHOWN_ENTRIES = 2_000  # of a folder
_FORKS = 100  # related threads that are sent, besides those that a thread was forked from
_FORKS_COUNTED = 1000  # of which it is told how many more there are


class Handlers:
    """Carries out the operations of the API on one store."""

    def __init__(self, store: Store, *, name: str, read_only: bool) -> None:
        self.store = store
        self.name = name
        self.read_only = read_only
        self._histories = HistoryCache(store, self.thread_info)
        self._listing = ThreadListing(store)
        self.health = Health(store)
        self._conversations = Conversations(store, self._histories)
        self._steps = StepList(store, self._histories)
        self._runs = Runs(store)
        self._turn_reader = TurnReader(store, self._histories)

    # -- the store ----------------------------------------------------------------------------------------------------

    def store_info(self, _: requests.EmptyRequest) -> responses.StoreResponse:
        """The store: its name, what it holds, and if this server may change it."""
        from backtrail import __version__

        return {
            "name": self.name,
            "version": __version__,
            "read_only": self.read_only,
            "stats": self.store.stats(survey=False),
        }

    def threads(self, request: requests.ThreadsRequest) -> responses.ThreadsResponse:
        """Threads, newest first; `next` is the `after` of the next page, which may have threads also if this one has
        none."""
        return self._listing.page(request)

    def health_report(self, request: requests.HealthRequest) -> responses.HealthResponse:
        """Figures for whoever runs the store."""
        return self.health.report(request.survey)

    def find(self, request: requests.FindRequest) -> Iterator[dict[str, Any]]:
        """Messages and checkpoints, one by one."""
        return finding.find(self.store, request)

    def thread_info(self, thread: str) -> ThreadInfo:
        """A thread as in a listing."""
        info = self._find(thread)
        if info is None:
            raise ThreadNotFound(thread)
        return info

    # -- one thread ---------------------------------------------------------------------------------------------------

    def thread(self, request: requests.ThreadRequest) -> responses.ThreadResponse:
        """A thread: its entry in the listing, its head and its related threads."""
        handle = self._handle(request.thread)
        info = self.thread_info(request.thread)
        parents = handle.forks("parent", limit=_FORKS)
        others = [fork for fork in handle.forks(limit=_FORKS_COUNTED) if fork.relation != "parent"]
        return {
            "thread": thread_json(info),
            "head": checkpoint_json(handle.get(info.head, salvage=True)),
            "forks": [fork_json(fork) for fork in (*parents, *others[:_FORKS])],
            "more_forks": max(0, len(others) - _FORKS),
        }

    def history(self, request: requests.HistoryRequest) -> responses.HistoryResponse:
        """A page of the history as rows of a graph, newest first."""
        return self._steps.page(request)

    def steps(self, request: requests.StepsRequest) -> responses.StepsResponse:
        """The steps that a filter keeps, newest first. One request looks at some of them only: `below` is where the
        next goes on."""
        return self._steps.filtered(request)

    def sizes(self, request: requests.ThreadRequest) -> responses.SizesResponse:
        """For a chart of the path to the head: the bytes that each step wrote, and the size of the state."""
        return self._steps.sizes(request)

    # -- one checkpoint -----------------------------------------------------------------------------------------------

    def checkpoint(self, request: requests.CheckpointRequest) -> CheckpointJson:
        """One checkpoint."""
        return checkpoint_json(self._at(request))

    def messages(self, request: requests.MessagesRequest) -> MessagesResponse:
        """A page of the conversation at a checkpoint. `key` is null if the state has none."""
        return self._conversations.messages(request, self._at(request))

    def conversation(self, request: requests.ConversationRequest) -> ConversationResponse:
        """A page of the conversation as turns, newest first, and the sums of all turns."""
        return self._conversations.turns(request, self._at(request))

    def image(self, request: requests.ImageRequest) -> Image:
        """An image of a message, as bytes."""
        return self._conversations.image(request, self._at(request))

    def state(self, request: requests.StateRequest) -> responses.StateResponse:
        """One level of the state at a checkpoint. An entry that is not `known` is too large to be included: request its
        own path."""
        return level(self._handle(request.thread), self._at(request), request)

    def diff(self, request: requests.DiffRequest) -> responses.DiffResponse:
        """The changes between two checkpoints; `total` may be more than are listed."""
        handle = self._handle(request.thread)
        a = request.a or ("@~1" if request.other is None else "@")
        b = self._handle(request.other or request.thread).get(request.b)
        found = handle.diff(a, b, request.since_fork)
        changes = [truncate(change_json(change), _SHOWN_VALUE) for change in found.changes[: request.limit]]
        return {
            "a": checkpoint_json(found.a),
            "b": checkpoint_json(found.b),
            "total": len(found.changes),
            "changes": changes,
        }

    def comparison(self, request: requests.ComparisonRequest) -> responses.ComparisonResponse:
        """Two checkpoints side by side, also of two threads: the conversation from where they part, the changes of the
        state, and those of the files."""
        return comparing.compare(self.store, self._histories, request)

    def value(self, request: requests.ValueRequest) -> responses.ValueResponse:
        """One value of the state, whole."""
        path = parse_path(request.path)
        return {"value": to_json(value_at(self._handle(request.thread), self._at(request), path))}

    def files(self, request: requests.FilesRequest) -> responses.FilesResponse:
        """The changes in the directory up to a checkpoint, file by file."""
        handle, checkpoint = self._handle(request.thread), self._at(request)
        if checkpoint.files is None:
            return {"snapshot": None, "base": None, "root": None, "total": 0, "changes": []}
        base = handle.get(request.base) if request.base else self._snapshot_before(request.thread, checkpoint)
        workspace = handle.workspace(checkpoint)
        changes = workspace.diff(base, checkpoint).changes if base is not None else ()
        return {
            "snapshot": checkpoint.files,
            "base": checkpoint_json(base) if base is not None else None,
            "root": _root_of(workspace),
            "total": len(changes),
            "changes": file_changes_json(changes[: request.limit]),
        }

    def tree(self, request: requests.TreeRequest) -> responses.TreeResponse:
        """A folder of the snapshot that was saved with a checkpoint."""
        checkpoint = self._at(request)
        found = self._handle(request.thread).workspace(checkpoint).entries(checkpoint, request.path)
        shown = found[:_SHOWN_ENTRIES]
        return {
            "entries": [{"name": one.name, "kind": one.kind, "size": one.size} for one in shown],
            "more": len(found) - len(shown),
        }

    def file(self, request: requests.TreeRequest) -> bytes:
        """A file of the snapshot that was saved with a checkpoint, as bytes."""
        checkpoint = self._at(request)
        return self._handle(request.thread).workspace(checkpoint).read(checkpoint, request.path)

    def _snapshot_before(self, thread: str, checkpoint: Checkpoint) -> Checkpoint | None:
        """The nearest ancestor of a checkpoint that has files."""
        with self._histories.read(thread) as history:
            ancestors = ancestry(history.graph.checkpoints(), checkpoint.parent_id)
        return next((ancestor for ancestor in ancestors if ancestor.files is not None), None)

    # -- sessions of coding agents -------------------------------------------------------------------------------------

    def turns(self, request: requests.TurnsRequest) -> responses.TurnsResponse:
        """The turns of a coding agent's session, newest first, each with its tools, tokens and duration."""
        return self._turn_reader.page(request)

    def turn(self, request: requests.TurnRequest) -> responses.TurnResponse:
        """One turn of a coding agent's session: its tool calls with their results, and the files that it changed."""
        return self._turn_reader.one(request)

    def export(self, request: requests.ExportRequest) -> tuple[str, str]:
        """A checkpoint as a file: (media type, text)."""
        handle = self._handle(request.thread)
        if request.form == "html":
            return "text/html", comparing.html_page(self.store, self._histories, request)
        return MEDIA_TYPES[request.form], export_checkpoint(self.store, handle, self._at(request), request.form)

    # -- runs ---------------------------------------------------------------------------------------------------------

    def run(self, request: requests.ThreadRequest) -> responses.RunResponse:
        """A run: how it stands, its steps, and what it waits for."""
        return self._runs.run(request)

    def pending(self, request: requests.PendingRequest) -> responses.PendingResponse:
        """Questions that wait for an answer, newest first."""
        return self._runs.pending(request)

    def answer(self, request: requests.AnswerRequest) -> responses.RunResponse:
        """Answer a question of a run; the first answer counts."""
        return self._runs.answer(request)

    def fork_run(self, request: requests.RunForkRequest) -> responses.ForkResponse:
        """Start a new run that has all steps before one."""
        return self._runs.fork_at(request)

    def resubmit(self, request: requests.ThreadRequest) -> responses.RunResponse:
        """Make a failed run ready again, for a worker to take up."""
        return self._runs.resubmit(request)

    # -- changing -----------------------------------------------------------------------------------------------------

    def save(self, request: requests.SaveRequest) -> CheckpointJson:
        """Save a whole state; only what changed is written."""
        handle = self._handle(request.thread)
        return checkpoint_json(handle.save(from_json(request.state), **_replace_options(handle, request)))

    def append(self, request: requests.AppendRequest) -> CheckpointJson:
        """Append items to a list of the state, whoever else appends to it."""
        items, options = from_json(request.items), _save_options(request)
        info = self._find(request.thread) if "expect" not in options and request.key == "messages" else None
        if info is not None and info.kind == "session":
            session = self.store.session(request.thread)
            return checkpoint_json(session.extend(items, **options))  # counts the user's turns too
        return checkpoint_json(self._handle(request.thread).append(request.key, items, **options))

    def update(self, request: requests.UpdateRequest) -> CheckpointJson:
        """Set some top-level keys of the state."""
        handle = self._handle(request.thread)
        return checkpoint_json(handle.update(from_json(request.changes), **_replace_options(handle, request)))

    def fork(self, request: requests.ForkRequest) -> responses.ForkResponse:
        """Start a new thread at a checkpoint."""
        made = self._handle(request.thread).fork(request.to, at=self._at(request))
        return {"thread": thread_json(self.thread_info(made.id))}

    def edit(self, request: requests.EditRequest) -> responses.ForkResponse:
        """Start a new thread at a checkpoint, with one value of the state replaced; the thread stays as it is."""
        handle, checkpoint = self._handle(request.thread), self._at(request)
        state = handle.load(checkpoint)
        made = handle.fork(request.to, at=checkpoint)
        try:
            made.save(replaced(state, request.path, from_json(request.value)))
        except BaseException:
            made.delete()
            raise
        return {"thread": thread_json(self.thread_info(made.id))}

    def rewind(self, request: requests.RewindRequest) -> responses.RewindResponse:
        """Move the head. `left` are the checkpoints that it leaves behind; they stay, and `undo` goes back."""
        handle = self._handle(request.thread)
        target = handle.get(request.at)
        with self._histories.read(request.thread) as history:
            left = left_behind(history.graph.checkpoints().values(), history.graph.head, target)
        changes: Changes | None = None
        if request.files:
            changes = handle.rewind_files(target, request.dry_run, request.keep_untracked)
        elif not request.dry_run:
            handle.rewind(target)
        return {
            "head": checkpoint_json(target),
            "left": [checkpoint.id for checkpoint in left],
            "done": not request.dry_run,
            **restore_json(changes),
        }

    def undo(self, request: requests.UndoRequest) -> responses.UndoResponse:
        """Take back the last move of the head; with `files`, the newest restore of its directory as well."""
        handle = self._handle(request.thread)
        head, changes = undo(
            handle, files=request.files, keep_untracked=request.keep_untracked, dry_run=request.dry_run
        )
        return {"head": checkpoint_json(head), **restore_json(changes)}

    def redo(self, request: requests.RedoRequest) -> responses.RedoResponse:
        """Do again what the last undo took back; with `files`, restore that checkpoint's files as well."""
        handle = self._handle(request.thread)
        head, changes = redo(
            handle, files=request.files, keep_untracked=request.keep_untracked, dry_run=request.dry_run
        )
        return {"head": checkpoint_json(head), **restore_json(changes)}

    def annotate(self, request: requests.AnnotateRequest) -> CheckpointJson:
        """Change the label, tags or custom fields of a checkpoint."""
        given = {"label": request.label, "tags": request.tags, "custom": request.custom}
        changes = {name: from_json(value) for name, value in given.items() if value is not msgspec.UNSET}
        return checkpoint_json(self._handle(request.thread).annotate(self._at(request), **changes))

    def delete(self, request: requests.DeleteRequest) -> responses.DeleteResponse:
        """Delete a thread, or one checkpoint of it."""
        handle = self._handle(request.thread)
        handle.delete(request.at)
        return {"deleted": request.thread, "at": request.at}

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _handle(self, thread: str) -> Thread[Any]:
        return self.store.thread(thread)

    def _find(self, thread: str) -> ThreadInfo | None:
        first = self.store.threads(thread, limit=1)  # of those that start with this name, it is the first
        return first[0] if first and first[0].id == thread else None

    def _at(self, request: requests.CheckpointRequest | requests.ConversationRequest) -> Checkpoint:
        return self._handle(request.thread).get(request.at, salvage=True)


def _replace_options(handle: Thread[Any], request: requests.WriteRequest) -> dict[str, Any]:
    """Options of a save that replaces a state: it must name the head that it replaces, because over HTTP no handle
    remembers what was loaded."""
    if request.expect is msgspec.UNSET and handle.exists():
        raise InvalidInput("say which head this replaces: expect=<checkpoint id>, or use append")
    return _save_options(request)


def _save_options(request: requests.WriteRequest) -> dict[str, Any]:
    options: dict[str, Any] = {
        "label": request.label,
        "tags": request.tags,
        "custom": from_json(request.custom),
        "id": request.id,
    }
    return options if request.expect is msgspec.UNSET else options | {"expect": request.expect}


def _root_of(workspace: Workspace) -> str | None:
    """The directory of a workspace, if this machine knows one: its snapshots can be compared without."""
    try:
        return workspace.root
    except NoDirectory:
        return None
