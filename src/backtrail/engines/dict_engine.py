"""Checks and listings for engines that keep their records in dicts and have no database to do this."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice, takewhile
from typing import TypeVar

from backtrail.engines import conflicts
from backtrail.engines.base import Commit, Head, Position

T = TypeVar("T", str, tuple[int, str])


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


class HeadIndex:
    """Heads by thread id, in the order of names and of age, in which a page is found without looking at the others.

    A change only notes which thread it touched. The next listing brings both orders up to date: a save costs the same
    whether anybody lists threads or not."""

    def __init__(self, heads: Iterable[Head] = ()) -> None:
        self.heads = {head.thread: head for head in heads}
        self._touched: set[str] | None = None  # None: all of them
        self._listed: dict[str, Head] = {}  # as they are in the orders
        self._names: dict[str | None, list[str]] = {}  # by kind, and all of them
        self._ages: dict[str | None, list[tuple[int, str]]] = {}

    def put(self, thread: str, head: Head | None) -> None:
        """Set the head of a thread; None deletes it."""
        if head is None:
            self.heads.pop(thread, None)
        else:
            self.heads[thread] = head
        if self._touched is not None:
            self._touched.add(thread)

    def count(self, prefix: str) -> int:
        """The number of threads whose id starts with `prefix`."""
        if not prefix:
            return len(self.heads)
        self._update()
        return sum(1 for _ in takewhile(lambda name: name.startswith(prefix), self._from(None, prefix, None)))

    def page(
        self, *, prefix: str, after: str | None, limit: int | None, kind: str | None, newest_first: bool
    ) -> list[Head]:
        """The page of a listing that `Engine.threads` returns for these arguments."""
        self._update()
        found: Iterator[str]
        if newest_first:
            found = (name for name in self._newest(kind, after) if name.startswith(prefix))
        else:
            found = takewhile(lambda name: name.startswith(prefix), self._from(kind, prefix, after))
        most = len(self.heads) if limit is None else min(limit, len(self.heads))
        return [self.heads[name] for name in islice(found, most)]

    def _from(self, kind: str | None, prefix: str, after: str | None) -> Iterator[str]:
        names = self._names.get(kind, [])
        start = bisect_left(names, prefix) if after is None or after < prefix else bisect_right(names, after)
        return (names[at] for at in range(start, len(names)))

    def _newest(self, kind: str | None, after: str | None) -> Iterator[str]:
        ages = self._ages.get(kind, [])
        end = len(ages)
        if after is not None:
            # A deleted thread has no time to compare with: nothing comes after it.
            last = self.heads.get(after)
            end = 0 if last is None else bisect_left(ages, _age(last))
        return (ages[at][1] for at in range(end - 1, -1, -1))

    def _update(self) -> None:
        touched, self._touched = self._touched, set()
        if touched is None or len(touched) > len(self.heads) // 8:
            self._listed = dict(self.heads)
            self._names, self._ages = {None: sorted(self.heads)}, {None: sorted(map(_age, self.heads.values()))}
            for name in self._names[None]:
                self._names.setdefault(self.heads[name].kind, []).append(name)
            for age in self._ages[None]:
                self._ages.setdefault(self.heads[age[1]].kind, []).append(age)
            return
        for name in touched:
            old, new = self._listed.pop(name, None), self.heads.get(name)
            for kind in () if old is None else (None, old.kind):
                _remove(self._names[kind], name)
                _remove(self._ages[kind], _age(old))  # type: ignore[arg-type]
            if new is not None:
                self._listed[name] = new
                for kind in (None, new.kind):
                    insort(self._names.setdefault(kind, []), name)
                    insort(self._ages.setdefault(kind, []), _age(new))


def _remove(ordered: list[T], one: T) -> None:
    del ordered[bisect_left(ordered, one)]


def _age(head: Head) -> tuple[int, str]:
    return head.updated, head.thread
