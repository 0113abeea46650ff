"""What a restore does not delete, although the wanted snapshot does not have it: the one place that decides it.

A snapshot holds everything in its directory but what is left out for a reason. So a path that is there now and not in
the snapshot was either left out then, which the snapshot itself tells (by its ignore rules, and by the list of what it
had to leave out), or it appeared since. What appeared since is deleted: the safety snapshot of the restore holds it.

One case is left: a snapshot of another directory says nothing about this one. What was here before anything of ours
must stay, and is known as well: the first record of a directory says it. If that is a snapshot, it holds it all, and
whatever no snapshot holds appeared later. If a restore came first, its safety snapshot holds it. And if there is no
record of this directory yet, it is all that is there now.

"In a snapshot" means one that somebody asked for: a safety snapshot does not make a file one of ours.
"""

from __future__ import annotations

from collections.abc import Callable

from backtrail.workspace.ignore_files import IGNORE_FILES, Rules
from backtrail.workspace.journal import SNAPSHOT_KINDS, Journal, Record
from backtrail.workspace.paths import folder_of, parents
from backtrail.workspace.trees import DIR, FILE


async def untracked_paths(
    journal: Journal, directory: str, paths: set[bytes], keep_untracked: bool
) -> dict[bytes, str]:
    """Those of the paths that must not be deleted because they are untracked, with the reasons; `directory` is the id
    of the directory, `keep_untracked` the user's wish."""
    if not paths:
        return {}
    records = await journal.records()
    own = [record for record in records if record.directory == directory]
    first = next((record for record in own if record.kind in SNAPSHOT_KINDS), None)
    if first is not None and first.kind == "snapshot" and not keep_untracked:
        return {}
    untracked = paths - await _held(journal, paths, [record for record in records if record.kind == "snapshot"])
    if keep_untracked:
        return dict.fromkeys(untracked, "in no snapshot")
    before = untracked if first is None else await _held(journal, untracked, [first])
    return dict.fromkeys(before, "in no snapshot, and there before the first one")


async def _held(journal: Journal, paths: set[bytes], records: list[Record]) -> set[bytes]:
    """Those of the paths that any of the records holds. Searches the newest first, and reads each tree once."""
    missing, visited = set(paths), set()
    for record in reversed(records):
        level = [(b"", record.tree)] if missing else []
        while level:
            level = [item for item in level if item not in visited]
            visited |= set(level)
            loaded = await journal.trees(id for _, id in level)
            needed = {above + b"/" for path in missing for above in parents(path)}
            below = []
            for prefix, id in level:
                for name, entry in loaded[id].items():
                    missing.discard(prefix + name)
                    if entry.kind == DIR and prefix + name + b"/" in needed:
                        below.append((prefix + name + b"/", entry.ref))
            level = below
    return paths - missing


async def rules_of(journal: Journal, tree: bytes, paths: set[bytes]) -> Callable[[bytes], Rules]:
    """The ignore rules that a snapshot itself contains, in every directory above the paths."""
    needed = {b""} | {above + b"/" for path in paths for above in parents(path)}
    rules: dict[bytes, Rules] = {}
    level = [(b"", tree)] if paths else []
    while level:
        loaded = await journal.trees(id for _, id in level)
        below = []
        for prefix, id in level:
            files = [loaded[id][name] for name in IGNORE_FILES if name in loaded[id]]
            texts = await journal.contents(entry for entry in files if entry.kind == FILE)
            above = rules[folder_of(prefix)] if prefix else Rules()
            rules[prefix] = above.below(prefix, (texts[e.ref] for e in files if e.kind == FILE))
            below += [
                (prefix + name + b"/", entry.ref)
                for name, entry in loaded[id].items()
                if entry.kind == DIR and prefix + name + b"/" in needed
            ]
        level = below

    def rules_in(folder: bytes) -> Rules:
        while folder not in rules and folder:
            folder = folder_of(folder)
        return rules.get(folder) or Rules()

    return rules_in
