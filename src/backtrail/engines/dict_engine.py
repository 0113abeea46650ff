"""Checks and listings for engines that keep their records in dicts and have no database to do this."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice, takewhile
from typing import TypeVar

from backtrail.engines import conflicts
from backtrail.engines.base import Commit, Head, Position
from backtrail.engines.reserved_names import namespace_of

T = TypeVar("T", str, tuple[int, str])
_Group = tuple[str | None, str | None]  # a namespace, or all threads; a kind, or all kinds


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
    """Heads by thread id, in the order of names and of age, in which a page is found without looking at the others. So
    is a page of a namespace.

    A change only notes which thread it touched. The next listing brings both orders up to date: a save costs the same
    whether anybody lists threads or not."""

    def __init__(self, heads: Iterable[Head] = ()) -> None:
        self.heads = {head.thread: head for head in heads}
        self._touched: set[str] | None = None  # None: all of them
        self._listed: dict[str, Head] = {}  # as they are in the orders
        self._names: dict[str | None, list[str]] = {}  # by kind, and all of them
        self._ages: dict[_Group, list[tuple[int, str]]] = {}

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
        names = self._names.get(None, [])
        first = bisect_left(names, prefix)
        return bisect_left(names, True, first, key=lambda name: not name.startswith(prefix)) - first

    def page(
        self, *, prefix: str, after: str | None, limit: int | None, kind: str | None, newest_first: bool
    ) -> list[Head]:
        """The page of a listing that `Engine.threads` returns for these arguments."""
        self._update()
        found: Iterator[str]
        if newest_first:
            group = (namespace_of(prefix), kind)
            found = (name for name in self._newest(group, after) if name.startswith(prefix))
        else:
            found = takewhile(lambda name: name.startswith(prefix), self._from(kind, prefix, after))
        most = len(self.heads) if limit is None else min(limit, len(self.heads))
        return [self.heads[name] for name in islice(found, most)]

    def _from(self, kind: str | None, prefix: str, after: str | None) -> Iterator[str]:
        names = self._names.get(kind, [])
        start = bisect_left(names, prefix) if after is None or after < prefix else bisect_right(names, after)
        return (names[at] for at in range(start, len(names)))

    def _newest(self, group: _Group, after: str | None) -> Iterator[str]:
        ages = self._ages.get(group, [])
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
            self._names, self._ages = {None: sorted(self.heads)}, {}
            for name in self._names[None]:
                self._names.setdefault(self.heads[name].kind, []).append(name)
            for age in sorted(map(_age, self.heads.values())):
                for group in _groups(self.heads[age[1]]):
                    self._ages.setdefault(group, []).append(age)
            return
        for name in touched:
            old, new = self._listed.pop(name, None), self.heads.get(name)
            if old is not None:
                for kind in (None, old.kind):
                    _remove(self._names[kind], name)
                for group in _groups(old):
                    _remove(self._ages[group], _age(old))
            if new is not None:
                self._listed[name] = new
                for kind in (None, new.kind):
                    insort(self._names.setdefault(kind, []), name)
                for group in _groups(new):
                    insort(self._ages.setdefault(group, []), _age(new))


def _remove(ordered: list[T], one: T) -> None:
    del ordered[bisect_left(ordered, one)]


def _age(head: Head) -> tuple[int, str]:
    return head.updated, head.thread


def _groups(head: Head) -> Iterator[_Group]:
    """All groups that a thread is in."""
    namespace = namespace_of(head.thread)
    for one in (None,) if namespace is None else (None, namespace):
        yield one, None
        yield one, head.kind
