"""A reversal: takes back what happened to a directory between two snapshots, and keeps what happened since.

For each path there are three states: before the change, after it, and now. If now is as after, it goes back to before.
If it is not, and all three are texts, what the change did is taken back line by line; where that is not possible, the
path stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backtrail.workspace.diff import MAX_TEXT
from backtrail.workspace.journal import Journal
from backtrail.workspace.restore import same_item
from backtrail.workspace.scanner import Scan
from backtrail.workspace.text_merge import is_text, merge
from backtrail.workspace.trees import FILE, Op, TreeEntry

CHANGED_SINCE = "changed since by somebody else"
MADE_AND_CHANGED = "was made then, and changed since"
DELETED_AND_BACK = "was deleted then, and made again since"
DELETED_SINCE = "deleted since"
NOT_TEXT = "changed since, and cannot be merged: not a text, or too large"
MOVING = "changes at this moment"
OVERLAPS = "changed since in the same lines"

ReadFiles = Callable[[list[tuple[bytes, TreeEntry]]], dict[bytes, bytes]]  # (path, entry) -> contents by ref


class Reversal:
    """The ops that take back `ops`, and the paths at which that is not possible."""

    def __init__(self, journal: Journal, ops: Iterable[Op], read_files: ReadFiles | None) -> None:
        """`read_files` reads files of the directory, to merge them; None if nothing is to be merged."""
        self._journal = journal
        self._ops = list(ops)
        self._read_files = read_files
        self.kept: list[tuple[bytes, str]] = []
        self.merged: set[bytes] = set()

    async def select(self, scan: Scan) -> list[Op]:
        """The ops, for the directory as it was scanned. The contents of merged files become blobs of the scan."""
        present = {path: entry for path, entry, _ in scan.items(op.path for op in self._ops)}
        result: list[Op] = []
        for op in self._ops:
            now = present.get(op.path)
            if same_item(now, op.new):
                result.append(Op(op.path, now, op.old))
            elif not same_item(now, op.old):
                merged = CHANGED_SINCE if self._read_files is None else await self._merged(op, now, scan)
                if isinstance(merged, TreeEntry):
                    self.merged.add(op.path)
                    result.append(Op(op.path, now, merged))
                else:
                    self.kept.append((op.path, merged))
        return result

    async def _merged(self, op: Op, now: TreeEntry | None, scan: Scan) -> TreeEntry | str:
        """The path with later changes and without those that are taken back; or why there is no such thing."""
        assert self._read_files is not None
        before, after = op.old, op.new
        if now is None:
            return DELETED_SINCE
        if before is None:
            return MADE_AND_CHANGED
        if after is None:
            return DELETED_AND_BACK
        if any(entry.kind != FILE or entry.size > MAX_TEXT for entry in (before, after, now)):
            return NOT_TEXT
        stored = await self._journal.contents((before, after))
        found = self._read_files([(op.path, now)])
        if now.ref not in found:
            return MOVING
        texts = stored[after.ref], found[now.ref], stored[before.ref]
        if not all(map(is_text, texts)):
            return NOT_TEXT
        content = merge(*texts)
        if content is None:
            return OVERLAPS
        id = self._journal.blob_id(content)
        scan.blobs[id] = self._journal.wrap(id, content)
        mode = before.mode if now.mode == after.mode else now.mode
        return TreeEntry(FILE, mode, len(content), id)
