"""Dictionaries: a lineage whose rows are compressed gets one once it has enough rows to train it from.

Training takes some 30 ms, so it is done once: a lineage that reaches the same length later adopts the dictionary that
this process trained before. A dictionary is a blob of the lineage that uses it, so lineages stay independent of each
other; the head's note names it for writers, and each frame for readers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from backtrail.encode.frame import NAME, LacksDictionary, describe_row, train
from backtrail.engines.base import Position
from backtrail.errors import Corrupt
from backtrail.history.caches import Tip
from backtrail.history.context import Context

T = TypeVar("T")
_PREFIX = b"zdict:"
ROWS = 64  # rows from which a dictionary is made, and after which it pays


def dictionary_id(name: bytes) -> bytes:
    """The blob id of a dictionary in the pool of its lineage."""
    return _PREFIX + name


def is_dictionary(id: bytes) -> bool:
    """True if a blob is a dictionary, which is kept for as long as its lineage."""
    return id.startswith(_PREFIX) and len(id) == len(_PREFIX) + NAME


async def learn(context: Context, lineage: str, name: bytes) -> None:
    """Fetch a dictionary, unless it is known; `Corrupt` if it is missing."""
    if context.frames.knows(name):
        return
    id = dictionary_id(name)
    found = await context.engine.blobs(lineage, [id])
    if id not in found:
        raise Corrupt(_where(name), f"it is missing, but rows of {lineage!r} were compressed with it")
    if context.frames.learn(context.frames.unwrap(found[id], _where(name))) != name:
        raise Corrupt(_where(name), "its content does not match its name")


async def with_dictionaries(context: Context, lineage: str, unwrap: Callable[[], T]) -> T:
    """The result of `unwrap`, which opens frames of a lineage; dictionaries that it lacks are fetched."""
    while True:
        try:
            return unwrap()
        except LacksDictionary as lacking:
            await learn(context, lineage, lacking.name)


class Choice(NamedTuple):
    """The name of the dictionary for a payload (b"": none), and its blob if it is new."""

    name: bytes
    blobs: dict[bytes, bytes]


NONE = Choice(b"", {})


async def choose(context: Context, tip: Tip | None, position: Position) -> Choice:
    """The dictionary for the payload of a new row, in a store that compresses."""
    if tip is None:
        return NONE
    branch, step = position
    name = tip.note.dictionary
    if name:
        try:
            await learn(context, tip.head.lineage, name)
        except Corrupt:
            return NONE  # reads of rows that need it raise an error; new rows are compressed without it
        return Choice(name, {})
    if step % ROWS or tip.head.branch != branch:
        return NONE
    content = context.trained_dictionary or await _train(context, tip, step)
    if not content:
        return NONE
    name = context.add_dictionary(content)
    return Choice(name, {dictionary_id(name): context.frames.wrap(content, _where(name))})


async def _train(context: Context, tip: Tip, step: int) -> bytes:
    branch = tip.head.branch
    rows = await context.engine.payloads(tip.head.lineage, branch, step - ROWS, step - 1)
    frames = context.frames
    samples = [frames.unwrap(data, f"{describe_row(branch, n)}: payload") for n, data in rows if data]
    return train([sample for sample in samples if len(sample) > 64])


def _where(name: bytes) -> str:
    return f"dictionary {name.hex()}"
