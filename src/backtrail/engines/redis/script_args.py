"""Commits and sweeps as the arguments of scripts, and a script's refusal as an error."""

from __future__ import annotations

from backtrail.engines import conflicts
from backtrail.engines.base import Commit, Drop, Fence
from backtrail.engines.conflicts import Refused
from backtrail.engines.redis import keys
from backtrail.engines.redis.client import Argument
from backtrail.errors import LockLost


def of_append(shards: keys.Shards, commit: Commit, ttl: int) -> list[Argument] | None:
    """Arguments of append_row.lua, for a commit that only adds one row after the head and moves the head; else None."""
    if len(commit.rows) != 1 or len(commit.swaps) != 1:
        return None
    if commit.branches or commit.marks or commit.blobs:
        return None
    fence = commit.fence
    if fence is not None and shards.of(fence.name) != shards.of(commit.lineage):
        return None
    row, (thread, expect, new) = commit.rows[0], commit.swaps[0]
    if expect is None or new is None:
        return None
    head: list[Argument] = [thread, keys.pack_key(expect), keys.pack_head(new), new.updated]
    args = [commit.lineage, ttl, *head, row.branch, row.step, keys.pack_row(row), row.payload]
    return args if fence is None else [*args, fence.name, fence.token]


def of_commit(shards: keys.Shards, commit: Commit, pointers: dict[str, int], ttl: int) -> list[Argument]:
    """Arguments of commit.lua, for any commit. Each list has its length in front. `pointers`: versions, by thread."""
    here, fence = shards.of(commit.lineage), commit.fence
    args: list[Argument] = [here, commit.lineage, ttl]
    args += [fence.name, fence.token, int(shards.of(fence.name) == here)] if fence else ["", "", 0]
    args.append(len(commit.swaps))
    for thread, expect, new in commit.swaps:
        home = int(shards.of(thread) == here)
        packed = (b"", 0) if new is None else (keys.pack_head(new), new.updated)
        args += [thread, keys.pack_key(expect), *packed, home, pointers.get(thread, 0)]
    args.append(len(commit.branches))
    for branch in commit.branches:
        args += [branch.id, keys.pack_branch(branch)]
    args.append(len(commit.rows))
    for row in commit.rows:
        args += [row.branch, row.step, keys.pack_row(row), row.payload]
    args.append(len(commit.marks))
    for mark in commit.marks:
        args += [mark.branch, mark.step, 0 if mark.data is None else 1, mark.data or b""]
    args.append(len(commit.blobs))
    for item in commit.blobs.items():
        args += item
    return args


def of_drop(drop: Drop) -> list[Argument]:
    """Arguments of drop.lua, without the lineage."""
    args: list[Argument] = [len(drop.expect)]
    for thread, key in drop.expect:
        args += [thread, keys.pack_key(key)]
    for pairs in drop.rows, drop.bodies:
        args += [len(pairs), *(part for pair in pairs for part in pair)]
    for names in drop.branches, drop.blobs:
        args += [len(names), *names]
    return args


def refusal(commit: Commit, answer: list[bytes]) -> Refused | LockLost:
    """The error for a refusal of append_row.lua or commit.lua."""
    reason, *facts = answer
    if reason == b"moved":
        return conflicts.moved(facts[0].decode())
    if reason == b"step":
        return conflicts.step_taken(commit.lineage, facts[0], int(facts[1]))
    if reason == b"branch":
        return conflicts.branch_taken(commit.lineage, facts[0])
    if reason == b"gone":
        return conflicts.branch_gone(commit.lineage, facts[0])
    return conflicts.fence_stale(commit.fence or Fence("", 0))
