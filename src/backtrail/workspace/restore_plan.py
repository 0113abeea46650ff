"""The restore planner: which differences may be carried out, and which are left alone, and why.

It starts from every path at which the directory and the wanted tree differ, and takes away what is protected:

* whatever the safety snapshot does not hold (ignored now, too large, unreadable, not a file) is never overwritten;
* a file that no snapshot ever knew is never deleted;
* a file that the wanted snapshot's own ignore rules cover, or that it could not take up, is never deleted.

Nothing here writes, so a dry run and a restore cannot disagree.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from backtrail.workspace.ignore import Rules
from backtrail.workspace.model import Change, Kind, Skipped
from backtrail.workspace.trees import DIR, FILE, LINK, PIECES, Op, TreeEntry

_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class RestorePlan(msgspec.Struct, frozen=True):
    """What to do, parents before children, and what is kept."""

    steps: list[Op]
    kept: list[tuple[bytes, str]]


def parents(path: bytes) -> Iterable[bytes]:
    """The directories above a path, outermost first: b"a/b/c" has b"a" and b"a/b"."""
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def all_above(paths: Iterable[bytes]) -> set[bytes]:
    """The directories above any of the paths."""
    found: set[bytes] = set()
    for path in paths:
        at = path.rfind(b"/")
        while at >= 0 and path[:at] not in found:
            found.add(path[:at])
            at = path.rfind(b"/", 0, at)
    return found


def removals(ops: Iterable[Op]) -> set[bytes]:
    """The paths that would go: only about these does anyone have to ask what was known."""
    return {op.path for op in ops if op.new is None}


def make_plan(
    root: bytes,
    ops: list[Op],
    *,
    known: Collection[bytes],
    skipped: Mapping[bytes, str],
    withheld: Collection[bytes],
    rules: Callable[[bytes], Rules],
    same: Callable[[bytes, TreeEntry], bool],
) -> RestorePlan:
    """Plan a restore of `ops` under `root`.

    `known`: paths that some snapshot held; `skipped`: what is in the directory but not in the safety snapshot;
    `withheld`: what was in the directory but not in the wanted snapshot; `rules`: the wanted snapshot's ignore rules
    in a directory; `same`: whether what stands at a path is what is wanted.
    """
    steps: list[Op] = []
    kept: dict[bytes, str] = {}
    absent: set[bytes] = set()  # directories that are not there, and that a step makes
    blocked: set[bytes] = set()  # paths below which nothing can be written

    for op in ops:
        above = op.path[: max(op.path.rfind(b"/"), 0)]
        if op.new is None:
            reason = _protected(op, known, withheld, rules)
            if reason is not None:
                kept[op.path] = reason
                continue
        elif above in blocked:
            kept[op.path] = "what stands above it is left alone"
            blocked.add(op.path)
            continue
        elif op.old is None and above not in absent:
            there = look(root, op.path)
            if there is not None:
                if op.new.kind == DIR and stat.S_ISDIR(there):
                    continue
                if not same(op.path, op.new):
                    kept[op.path] = skipped.get(op.path, "ignored by rule") + ", so no snapshot holds it"
                    blocked.add(op.path)
                continue
        if op.new is not None and op.new.kind == DIR and (op.old is None or op.old.kind != DIR):
            absent.add(op.path)
        steps.append(op)
    return _without_occupied(steps, kept, skipped)


def _protected(
    op: Op, known: Collection[bytes], withheld: Collection[bytes], rules: Callable[[bytes], Rules]
) -> str | None:
    if op.path not in known:
        return "never in a snapshot"
    if op.path in withheld or any(above in withheld for above in parents(op.path)):
        return "the snapshot left it out"
    is_dir = op.old is not None and op.old.kind == DIR
    for path, directory in [(above, True) for above in parents(op.path)] + [(op.path, is_dir)]:
        if rules(path[: path.rfind(b"/") + 1]).ignores(path, directory):
            return "ignored by the snapshot's rules"
    return None


def _without_occupied(steps: list[Op], kept: dict[bytes, str], skipped: Mapping[bytes, str]) -> RestorePlan:
    """A directory that holds something left alone can neither go nor become a file."""
    occupied = all_above((*kept, *skipped))
    if not occupied:
        return RestorePlan(steps, sorted(kept.items()))
    result: list[Op] = []
    for op in steps:
        if op.path in occupied and op.old is not None and op.old.kind == DIR and (op.new is None or op.new.kind != DIR):
            if op.new is not None:
                kept[op.path] = "a directory with files that are left alone"
        else:
            result.append(op)
    return RestorePlan(result, sorted(kept.items()))


def look(root: bytes, path: bytes) -> int | None:
    """The mode of what stands at a path, without following any link on the way; None if nothing does."""
    for above in parents(path):
        try:
            if not stat.S_ISDIR(os.lstat(root + b"/" + above).st_mode):
                return None
        except (FileNotFoundError, NotADirectoryError):
            return None
    try:
        return os.lstat(root + b"/" + path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def describe(steps: Iterable[Op], unsaved: Collection[bytes] = ()) -> tuple[Change, ...]:
    """Steps as a user reads them. A directory as such shows only where it is empty, or changes its mode or type."""
    listed = list(steps)
    filled = all_above(op.path for op in listed)
    return tuple(
        Change(text_of(op.path), kind_of(op), op.path in unsaved)
        for op in listed
        if not (op.path in filled and kind_of(op) in ("added", "removed"))
    )


def text_of(path: bytes) -> str:
    """A path as a user reads it; `os.fsdecode` without its questions."""
    return path.decode(_ENCODING, _ERRORS)


def kind_of(op: Op) -> Kind:
    """What happens at a path."""
    if op.old is None:
        return "added"
    if op.new is None:
        return "removed"
    if _TYPES[op.old.kind] != _TYPES[op.new.kind]:
        return "type"
    return "mode" if op.old._replace(mode=0) == op.new._replace(mode=0) or op.new.kind == DIR else "changed"


_TYPES = {FILE: FILE, PIECES: FILE, LINK: LINK, DIR: DIR}


def show(items: Iterable[tuple[bytes, str]]) -> tuple[Skipped, ...]:
    """Paths and reasons as a user reads them."""
    return tuple(Skipped(text_of(path), reason) for path, reason in items)
