"""Checks and listings for engines that keep their records in dicts and have no database to do this."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from backtrail.engines import conflicts
from backtrail.engines.base import Commit, Head, Position


def check_rows(
    commit: Commit, is_taken: Callable[[bytes], bool], steps_of: Callable[[bytes], Container[int] | None]
) -> None:
    """Refuse a commit if one of its branches exists, or one of its rows has no branch or a position that is taken.

    `is_taken` knows the branches of the whole store, `steps_of` the steps of a branch of the commit's lineage."""
    new: set[bytes] = set()
    for branch in commit.branches:
        if branch.id in new or is_taken(branch.id):
            raise conflicts.branch_taken(commit.lineage, branch.id)
        new.add(branch.id)
    seen: set[Position] = set()
    for row in commit.rows:
        there = steps_of(row.branch)
        if there is None and row.branch not in new:
            raise conflicts.branch_gone(commit.lineage, row.branch)
        if (there is not None and row.step in there) or (row.branch, row.step) in seen:
            raise conflicts.step_taken(commit.lineage, row.branch, row.step)
        seen.add((row.branch, row.step))


def page(
    heads: Mapping[str, Head],
    *,
    prefix: str,
    after: str | None,
    limit: int | None,
    kind: str | None,
    newest_first: bool,
) -> list[Head]:
    """The page of a listing that `Engine.threads` returns for these arguments."""
    found = [head for head in heads.values() if head.thread.startswith(prefix) and (kind is None or head.kind == kind)]
    found.sort(key=_age if newest_first else _name, reverse=newest_first)
    if after is not None and newest_first:
        # A deleted thread has no time to compare with: nothing comes after it.
        last = heads.get(after)
        found = [] if last is None else [head for head in found if _age(head) < _age(last)]
    elif after is not None:
        found = [head for head in found if head.thread > after]
    return found[:limit]


def _age(head: Head) -> tuple[int, str]:
    return head.updated, head.thread


def _name(head: Head) -> str:
    return head.thread
