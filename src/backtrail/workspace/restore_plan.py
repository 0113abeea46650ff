"""The restore plan: which differences are applied, and which are left alone, and why.

It starts from every path at which the directory and the wanted tree differ, and removes what is protected:

* a file that the safety snapshot does not hold, or not for certain (ignored now, too large, unreadable, changing all
  the time, not a file) is neither overwritten nor deleted;
* a file that the wanted snapshot's own ignore rules cover, or that it had to leave out, is not deleted: it may have
  been there;
* a file that is `untracked`, see `Restorer`, is not deleted;
* the store itself, and the registry of directories, are neither overwritten nor made.

Everything else that the wanted tree does not have appeared since, and is deleted; the safety snapshot holds it. Nothing
here writes, so a dry run and a restore cannot disagree.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from blake3 import blake3

from backtrail.workspace.descent import Descent
from backtrail.workspace.exclusions import IGNORED, OWN
from backtrail.workspace.ignore_files import Rules
from backtrail.workspace.model import Change, ChangeKind, Skipped
from backtrail.workspace.paths import all_parents, folder_of, parents, to_text
from backtrail.workspace.trees import DIR, FILE, LINK, PIECES, Op, TreeEntry

_TYPES = {FILE: FILE, PIECES: FILE, LINK: LINK, DIR: DIR}


class RestorePlan(msgspec.Struct, frozen=True):
    """The steps, parents before children, and the paths that are kept, with the reasons."""

    steps: list[Op]
    kept: list[tuple[bytes, str]]

    @property
    def digest(self) -> str:
        """Names the steps, with what is there now and what will be: two plans with one name do the same."""
        return blake3(msgspec.msgpack.encode(self.steps)).hexdigest(length=16)


def removals(ops: Iterable[Op]) -> set[bytes]:
    """The paths that the ops would delete."""
    return {op.path for op in ops if op.new is None}


def make_plan(
    descent: Descent,
    ops: list[Op],
    *,
    untracked: Mapping[bytes, str],
    skipped: Mapping[bytes, str],
    withheld: Collection[bytes],
    rules: Callable[[bytes], Rules],
    is_at: Callable[[TreeEntry, bytes], bool],
    is_own: Callable[[bytes], bool],
) -> RestorePlan:
    """Plan a restore of `ops` under the root of `descent`.

    `untracked`: paths that must not be deleted, with the reasons; `skipped`: paths in the directory that the safety
    snapshot does not hold for certain, with the reasons; `withheld`: paths that the wanted snapshot had to leave out;
    `rules`: the wanted snapshot's ignore rules in
    a folder; `is_at`: True if an entry is at a path already; `is_own`: True if a path belongs to the store itself.
    """
    steps: list[Op] = []
    kept: dict[bytes, str] = {}
    new_dirs: set[bytes] = set()  # directories that a step makes
    blocked: set[bytes] = set()  # paths below which nothing can be written

    for op in ops:
        above = op.path[: max(op.path.rfind(b"/"), 0)]
        if op.old is not None and op.path in skipped:
            kept[op.path] = skipped[op.path]
            blocked.add(op.path)
            continue
        if op.new is None:
            reason = untracked.get(op.path) or _protection(op, withheld, rules)
            if reason is not None:
                kept[op.path] = reason
                continue
        elif above in blocked or is_own(op.path):
            kept[op.path] = "what stands above it is left alone" if above in blocked else OWN
            blocked.add(op.path)
            continue
        elif op.old is None and above not in new_dirs:
            found = descent.lstat(op.path)
            if found is not None:
                if op.new.kind == DIR and stat.S_ISDIR(found.st_mode):
                    continue
                if not is_at(op.new, op.path):
                    kept[op.path] = skipped.get(op.path, IGNORED) + ", so no snapshot holds it"
                    blocked.add(op.path)
                continue
        if op.new is not None and op.new.kind == DIR and (op.old is None or op.old.kind != DIR):
            new_dirs.add(op.path)
        steps.append(op)
    return _without_occupied(steps, kept, skipped)


def _protection(op: Op, withheld: Collection[bytes], rules: Callable[[bytes], Rules]) -> str | None:
    """The reason why the wanted snapshot itself forbids to delete a path; None if it does not."""
    if op.path in withheld or any(above in withheld for above in parents(op.path)):
        return "the snapshot left it out"
    is_dir = op.old is not None and op.old.kind == DIR
    for path, directory in [(above, True) for above in parents(op.path)] + [(op.path, is_dir)]:
        if rules(folder_of(path)).ignores(path, directory):
            return "ignored by the snapshot's rules"
    return None


def _without_occupied(steps: list[Op], kept: dict[bytes, str], skipped: Mapping[bytes, str]) -> RestorePlan:
    """Leave out steps that would delete or replace a directory in which something is kept."""
    occupied = all_parents((*kept, *skipped))
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


def listed_ops(ops: Iterable[Op]) -> list[Op]:
    """The ops that users see: a directory is listed only if it is empty, or changes its mode or type."""
    every = list(ops)
    filled = all_parents(op.path for op in every)
    return [op for op in every if not (op.path in filled and change_kind(op) in ("added", "removed"))]


def to_changes(ops: Iterable[Op], unsaved: Collection[bytes] = ()) -> tuple[Change, ...]:
    """Ops as users see them."""
    return tuple(Change(to_text(op.path), change_kind(op), op.path in unsaved) for op in listed_ops(ops))


def change_kind(op: Op) -> ChangeKind:
    """The kind of change that an op is."""
    if op.old is None:
        return "added"
    if op.new is None:
        return "removed"
    if _TYPES[op.old.kind] != _TYPES[op.new.kind]:
        return "type"
    return "mode" if op.old._replace(mode=0) == op.new._replace(mode=0) or op.new.kind == DIR else "changed"


def to_skipped(items: Iterable[tuple[bytes, str]]) -> tuple[Skipped, ...]:
    """Paths and reasons as users see them."""
    return tuple(Skipped(to_text(path), reason) for path, reason in items)
