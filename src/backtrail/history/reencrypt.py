"""Reencryption: converts the records of one store for another store that has different keys.

Every frame is opened with one ring and sealed with the other. Blobs are named by keyed hashes, so they may get new
names; then roots and pages, which refer to them, are rewritten. Dictionaries are not copied: payloads are compressed
without one, until the other store has its own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.encode.frame import BEFORE, BEHIND, describe_row
from backtrail.encode.payload_format import pack_payload, unpack_payload
from backtrail.encode.row_format import Blob, Node, Root, Tree, pack_page, pack_root, unpack_page, unpack_root
from backtrail.encode.tree_walks import unread_pages
from backtrail.engines.base import Branch, Head, Mark, NewRow, Position, Row
from backtrail.engines.branch_origins import first_step, previous_position
from backtrail.errors import InvalidInput
from backtrail.history.context import Context
from backtrail.history.reachability import ASIDE, GAP
from backtrail.history.records import (
    NO_DIGEST,
    body_digest,
    chain,
    first_link,
    meta_of,
    open_branch,
    open_mark,
    open_note,
    pack_meta,
    seal_branch,
    seal_mark,
    unpack_meta,
    with_note,
)
from backtrail.history.zstd_dictionary import is_dictionary, with_dictionaries

_BATCH = 16
Digests = dict[Position, bytes]


class Reencryption:
    """From one store to another, for one lineage."""

    def __init__(self, source: Context, target: Context, lineage: str) -> None:
        self._source = source
        self._target = target
        self._lineage = lineage
        self._names: dict[bytes, bytes] = {}  # old -> new, if they differ

    # -- blobs --------------------------------------------------------------------------------------------------------

    async def missing_blobs(self, there: set[bytes]) -> list[bytes]:
        """Blobs that the target lacks. Also records the name of each in the target."""
        ids = [
            id
            for id, _ in await self._source.engine.blob_ids(self._lineage)
            if not is_dictionary(id) and not id.startswith((ASIDE, GAP))
        ]
        if self._source.frames.blob_id(b"") == self._target.frames.blob_id(b""):
            return [id for id in ids if id not in there]
        result = []
        for start in range(0, len(ids), _BATCH):
            for id, frame in (await self._source.engine.blobs(self._lineage, ids[start : start + _BATCH])).items():
                self._names[id] = self._target.frames.blob_id(self._open(frame, f"blob {id.hex()}"))
                if self._names[id] not in there:
                    result.append(id)
        if ids:
            await self._check_kinds()
        return result

    async def _check_kinds(self) -> None:
        """Refuse workspaces: their trees refer to blobs in a format of their own, which cannot be converted here."""
        for head in await self._source.engine.heads(self._lineage):
            if head.kind == "workspace":
                raise InvalidInput(
                    f"workspace {head.thread!r} cannot be copied between a store with a key and one without: "
                    "copy it into a new store of the same kind, or snapshot the directory again"
                )

    def blobs(self, found: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """Blobs under their new names."""
        made = {}
        for id, frame in found.items():
            name = self._names.get(id, id)
            made[name] = self._target.frames.wrap(self._open(frame, f"blob {id.hex()}"), f"blob {name.hex()}")
        return made

    def _open(self, frame: bytes, where: str) -> bytes:
        return self._source.frames.unwrap(frame, where)

    # -- rows ---------------------------------------------------------------------------------------------------------

    async def rows(self, branch: Branch, rows: list[Row], digests: Digests) -> tuple[list[NewRow], list[Mark]]:
        """Rows of a branch, chained to the target's rows (`digests`)."""
        made, marks = [], []
        for row in rows:
            new = await self._row(branch, row, digests)
            digests[branch.id, row.step] = new.digest
            made.append(new)
            if row.mark is not None:
                marks.append(Mark(branch.id, row.step, self.mark(branch.id, row.step, row.mark)))
        return made, marks

    async def _row(self, branch: Branch, row: Row, digests: Digests) -> NewRow:
        where = describe_row(branch.id, row.step)
        wrap = self._target.frames.wrap
        meta = unpack_meta(self._open(row.meta, meta_of(where, row.id)), where)
        root = body = b""
        if row.root or row.payload:
            tree = unpack_root(self._open(row.root, f"{where}: root"), branch.id, where)
            content = await with_dictionaries(
                self._source, self._lineage, lambda: self._open(row.payload, f"{where}: payload")
            )
            if self._names:
                content = self._rename_in_pages(branch.id, row.step, tree.tree, content, where)
                tree = Root(self._rename_in_tree(tree.tree), tree.streams)
            root = wrap(pack_root(tree, branch.id), f"{where}: root")
            body = wrap(content, f"{where}: payload")
        if root:
            meta = msgspec.structs.replace(meta, body=body_digest(root, body))
        packed = wrap(pack_meta(meta), meta_of(where, row.id))
        return NewRow(branch.id, row.step, row.id, packed, self._chain(branch, row, packed, digests), root, body)

    def _chain(self, branch: Branch, row: Row, packed: bytes, digests: Digests) -> bytes:
        before = previous_position(branch, row.step)
        previous = NO_DIGEST if before is None else digests.get(before, NO_DIGEST)
        if row.step == first_step(branch):
            previous = first_link(branch, previous)
        return chain(previous, row.id, packed)

    def branch(self, branch: Branch, digests: Digests) -> Branch:
        """The record of a branch, sealed for the target and bound to the target's row at its origin."""
        open_branch(self._source.frames, branch)
        digest = NO_DIGEST if branch.origin is None else digests.get(branch.origin, NO_DIGEST)
        return seal_branch(self._target.frames, branch, digest)

    def mark(self, branch: bytes, step: int, data: bytes) -> bytes:
        """A mark, sealed for the target."""
        sealed = seal_mark(self._target.frames, branch, step, open_mark(self._source.frames, branch, step, data)).data
        assert sealed is not None
        return sealed

    def same_mark(self, branch: Branch, step: int, here: bytes, there: bytes | None) -> bool:
        """True if two marks, sealed differently, have the same content."""
        return there is not None and open_mark(self._source.frames, branch.id, step, here) == open_mark(
            self._target.frames, branch.id, step, there
        )

    def head(self, head: Head) -> Head:
        """A head, its note sealed for the target."""
        note = msgspec.structs.replace(open_note(self._source.frames, head), dictionary=b"")
        return with_note(self._target.frames, head, note)

    # -- names within roots and pages ---------------------------------------------------------------------------------

    def _rename_in_tree(self, tree: Tree) -> Tree:
        if tree.children is None:
            return tree
        return Tree(tree.type, {key: self._rename(node) for key, node in tree.children.items()}, tree.size, tree.pages)

    def _rename(self, node: Node) -> Node:
        if isinstance(node, Tree):
            return self._rename_in_tree(node)
        if isinstance(node, Blob):
            return Blob(self._names.get(node.id, node.id), node.size, node.text)
        return node

    def _rename_in_pages(self, branch: bytes, step: int, tree: Tree, content: bytes, where: str) -> bytes:
        """The payload with the target's blob names in those of its pages that this row was the first to write."""
        sections, slots = unpack_payload(BEFORE + content + BEHIND, where)
        waiting: list[Any] = [page for page in unread_pages(tree) if (page.branch, page.step) == (branch, step)]
        if not waiting:
            return content
        while waiting:
            page = waiting.pop()
            children = unpack_page(slots[page.index], branch, where)
            below = Tree(None, children, 0)
            waiting += [one for one in unread_pages(below) if (one.branch, one.step) == (branch, step)]
            slots[page.index] = pack_page({key: self._rename(node) for key, node in children.items()}, branch)
        return pack_payload(sections, slots)
