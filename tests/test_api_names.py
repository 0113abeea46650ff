"""The public names: every one that users rely on is there, sync and async, with the same arguments and a docstring."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from typing import Any

import pytest

import backtrail
import backtrail.aio
import backtrail.errors
from backtrail.aio import AsyncAutosave, AsyncLock
from backtrail.janitor import AsyncJanitor, Janitor
from backtrail.run import Run
from backtrail.run.async_api import AsyncRun
from backtrail.session import Session
from backtrail.session.async_api import AsyncSession
from backtrail.thread.views import AsyncThreadView, ThreadView
from backtrail.workspace import AsyncWorkspace, Workspace

NAMES = {
    "store": (
        "thread session run workspace threads sessions runs count stats ping close prune janitor janitor_status verify "
        "compact copy_to pending answer due submit resubmit work replay"
    ),
    "thread": (
        "id head step exists save append update load get history find fork rewind undo redo diff common_ancestor "
        "annotate delete lock autosave"
    ),
    "session": (
        "add append extend pop clear messages replace truncate summary set_summary user_turns save snapshot rewind "
        "fork thread load get history diff annotate undo redo"
    ),
    "run": "iteration messages system_prompt input_tokens output_tokens custom checkpoint exists resume finish "
    "load get history diff annotate undo redo rewind "
    "step ask sleep sleep_until steps outcome fork status input result error",
    "workspace": "snapshot restore diff snapshots undo",
    "janitor": "start stop status",
    "lock": "acquire renew release",
    "autosave": "flush",
}
FACADES: dict[str, tuple[type, type]] = {
    "store": (backtrail.Store, backtrail.aio.AsyncStore),
    "thread": (backtrail.Thread, backtrail.aio.AsyncThread),
    "session": (Session, AsyncSession),
    "run": (Run, AsyncRun),
    "view": (ThreadView, AsyncThreadView),
    "workspace": (Workspace, AsyncWorkspace),
    "janitor": (Janitor, AsyncJanitor),
    "lock": (backtrail.Lock, AsyncLock),
    "autosave": (backtrail.Autosave, AsyncAutosave),
}
EACH = [(noun, name) for noun, names in NAMES.items() for name in names.split()]


def has(cls: type, name: str) -> bool:
    """True if instances have the name: on the class, or set when one is made."""
    return (
        hasattr(cls, name)
        or f"self.{name} = " in inspect.getsource(cls.__init__)
        or f"self.{name}: " in (inspect.getsource(cls.__init__))
    )


@pytest.mark.parametrize(("noun", "name"), EACH)
def test_every_name_is_in_both_facades(noun: str, name: str) -> None:
    for facade in FACADES[noun]:
        assert has(facade, name), f"{facade.__name__} has no {name}"


def public(cls: type) -> list[str]:
    return [name for name, value in vars(cls).items() if not name.startswith("_") and callable(value)]


@pytest.mark.parametrize("noun", FACADES)
def test_the_two_facades_have_the_same_methods_with_the_same_arguments(noun: str) -> None:
    one, other = FACADES[noun]
    assert sorted(public(one)) == sorted(public(other))
    for name in public(one):
        mine, theirs = (inspect.signature(getattr(facade, name)).parameters for facade in (one, other))
        assert [(p.name, p.default, p.kind) for p in mine.values()] == [
            (p.name, p.default, p.kind) for p in theirs.values()
        ], f"{noun}.{name}"


@pytest.mark.parametrize("noun", FACADES)
def test_every_public_method_says_what_it_does(noun: str) -> None:
    for facade in FACADES[noun]:
        for name in public(facade):
            assert (getattr(facade, name).__doc__ or "").strip(), f"{facade.__name__}.{name}"


@pytest.mark.parametrize("noun", FACADES)
def test_help_and_signatures_name_the_public_class_and_its_types(noun: str) -> None:
    for facade in FACADES[noun]:
        for name in public(facade):
            method = getattr(facade, name)
            assert method.__qualname__ == f"{facade.__name__}.{name}"
            assert method.__module__ == facade.__module__
            assert not hasattr(method, "__wrapped__")
            signature = inspect.signature(method)
            kinds = [*(p.annotation for p in [*signature.parameters.values()][1:]), signature.return_annotation]
            assert inspect.Signature.empty not in kinds, f"{facade.__name__}.{name}"
            assert not [kind for kind in kinds if "Core" in str(kind)], f"{facade.__name__}.{name}"
            first = (method.__doc__ or "").strip().splitlines()[0]
            assert first.split()[0] not in ("What", "Whether"), f"{facade.__name__}.{name}"


@pytest.mark.parametrize("noun", FACADES)
def test_nothing_public_leads_to_the_inner_objects(noun: str) -> None:
    for facade in FACADES[noun]:
        source = inspect.getsource(facade.__init__) if "__init__" in vars(facade) else ""
        for line in source.splitlines():
            assert not re.match(r"\s+self\.(?!_|thread: )\w+", line), f"{facade.__name__}: {line.strip()}"


def test_help_shows_the_types_of_a_save() -> None:
    text = pydoc.plain(pydoc.render_doc(backtrail.Thread.save))
    assert "save in module backtrail.thread.sync_api" in text
    assert "label: 'str | None' = None" in text
    assert "expect: 'Expect | UnsetType' = UNSET" in text
    assert "-> 'Checkpoint'" in text


SIGNATURES: list[tuple[Any, str]] = [
    (backtrail.Thread.save, "state label tags custom files expect id"),
    (backtrail.Thread.append, "key items label tags custom files expect id"),
    (backtrail.Thread.update, "changes label tags custom files expect id"),
    (backtrail.Thread.load, "at as_"),
    (backtrail.Thread.history, "limit newest_first all"),
    (backtrail.Thread.find, "tag label custom"),
    (backtrail.Thread.fork, "to at"),
    (backtrail.Thread.rewind, "at files prune"),
    (backtrail.Thread.diff, "a b since_fork"),
    (backtrail.Thread.annotate, "at label tags custom"),
    (backtrail.Thread.delete, "at"),
    (backtrail.Thread.lock, "timeout ttl"),
    (backtrail.Thread.autosave, "every"),
    (backtrail.Store.thread, "id type"),
    (backtrail.Store.session, "id errors"),
    (backtrail.Store.run, "id task"),
    (backtrail.Store.workspace, "root name"),
    (backtrail.Store.threads, "prefix limit after"),
    (backtrail.Store.prune, "retention max_age dry_run progress"),
    (backtrail.Store.janitor, "every"),
    (backtrail.Store.verify, "progress"),
    (backtrail.Store.compact, "progress"),
    (backtrail.Store.copy_to, "other progress"),
    (Session.add, "role content"),
    (Session.messages, "last whole"),
    (Session.replace, "messages user_turns"),
    (Session.truncate, "keep_last before"),
    (Session.snapshot, "message_id files"),
    (Session.rewind, "message_id files"),
    (Session.fork, "to"),
    (Run.checkpoint, "messages input_tokens output_tokens"),
    (Workspace.snapshot, "label progress"),
    (Workspace.restore, "snapshot dry_run"),
    (Workspace.diff, "a b"),
]


@pytest.mark.parametrize(("method", "arguments"), SIGNATURES, ids=lambda value: getattr(value, "__qualname__", ""))
def test_the_arguments_have_their_names(method: Any, arguments: str) -> None:
    assert set(arguments.split()) <= set(inspect.signature(method).parameters)


def test_the_values_and_errors_have_their_names() -> None:
    fields = "id thread_id parent_id step created_at label tags custom size written files damage"
    assert set(fields.split()) == set(backtrail.Checkpoint.__struct_fields__)
    listed = "id kind head step count created_at updated_at size version damage"
    assert set(listed.split()) == set(backtrail.ThreadInfo.__struct_fields__)
    policy = "keep_last max_age ttl keep_labelled keep_tags undo_window finished_runs"
    assert set(policy.split()) == set(backtrail.Retention.__struct_fields__)
    under = {
        "NotFound": "ThreadNotFound CheckpointNotFound NoCheckpoint",
        "BacktrailError": "NotFound Conflict InvalidInput EncodeError Corrupt Unavailable LockTimeout "
        "UnsupportedFormat MissingExtra UnsafePath",
    }
    for parent, children in under.items():
        for child in children.split():
            assert issubclass(getattr(backtrail.errors, child), getattr(backtrail.errors, parent))
            assert getattr(backtrail, child) is getattr(backtrail.errors, child)


def test_the_async_facade_is_there_without_an_import_of_its_own() -> None:
    code = (
        "import backtrail, sys\n"
        "assert {'aio', 'errors', 'open'} <= {*dir(backtrail)}; assert 'Any' not in dir(backtrail)\n"
        "assert 'asyncio' not in sys.modules; backtrail.aio.open"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
