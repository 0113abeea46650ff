"""Captions: the fields that a listing shows of a session or a run, read from its head alone.

Each save writes a caption into the head's note. It names the checkpoint that it describes: after a rewind or a fork the
head is at another one, and only then is a row read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from backtrail.encode.frame import describe_row
from backtrail.encode.row_format import Root
from backtrail.engines.base import Head
from backtrail.errors import DECODE_ERRORS, Corrupt
from backtrail.history.context import Context
from backtrail.history.records import damaged_info, open_note, thread_info
from backtrail.history.store_core import list_heads
from backtrail.history.thread_core import ThreadCore
from backtrail.model import ThreadInfo

Info = TypeVar("Info", bound=ThreadInfo)
_encode = msgspec.msgpack.Encoder().encode
_COMMON = ThreadInfo.__struct_fields__


def encode_caption(id: bytes, *facts: Any) -> bytes:
    """A caption with these facts, of the checkpoint `id`."""
    return _encode((id[-6:], facts))


class CaptionedListing(Generic[Info]):
    """The listing of one kind of thread. `facts` extracts from a root the fields that `info` has in addition to those
    of `ThreadInfo`, in their order; `shape` is the type of that tuple, and `no_facts` stands for those of a damaged
    thread."""

    def __init__(
        self,
        kind: str,
        info: type[Info],
        shape: Any,
        facts: Callable[[Root], tuple[Any, ...]],
        no_facts: tuple[Any, ...],
    ) -> None:
        self.kind = kind
        self._info = info
        self._facts = facts
        self._no_facts = no_facts
        self._decode = msgspec.msgpack.Decoder(tuple[bytes, shape]).decode
        self._fields = [name for name in info.__struct_fields__ if name not in _COMMON]

    def caption(self, root: Root, id: bytes) -> bytes:
        """The caption for a head's note; `id` is the checkpoint that it describes."""
        return encode_caption(id, *self._facts(root))

    async def info(self, context: Context, head: Head) -> Info:
        """The listing's entry for the thread of a head. A damaged thread is listed as such, without its facts."""
        try:
            common, facts = thread_info(context.frames, head), await self._read_facts(context, head)
        except Corrupt as error:
            common, facts = damaged_info(head, error), self._no_facts
        fields = {name: getattr(common, name) for name in _COMMON}
        return self._info(**fields, **dict(zip(self._fields, facts, strict=True)))

    async def _read_facts(self, context: Context, head: Head) -> tuple[Any, ...]:
        note = open_note(context.frames, head)
        try:
            checkpoint, facts = self._decode(note.custom) if note.custom else (b"", ())
        except DECODE_ERRORS:  # the last save was made as another kind of thread, with that kind's caption
            checkpoint, facts = b"", ()
        if checkpoint == note.checkpoint[-6:]:
            return facts
        root = (await ThreadCore[Any](context, head.thread).read_root()).root
        try:
            return self._facts(root)
        except DECODE_ERRORS as error:
            raise Corrupt(describe_row(*head.position), f"a value in its root makes no sense: {error}") from error

    async def page(
        self, context: Context, prefix: str = "", limit: int | None = None, after: str | None = None
    ) -> list[Info]:
        """Threads whose id starts with `prefix`, newest first; `after` is the last id of the page before."""
        heads = await list_heads(context, prefix, limit, after, self.kind)
        return [await self.info(context, head) for head in heads]
