"""Reserved names: records that a store keeps about itself, beside the threads of its users.

A name given by a user must not begin with the reserved character. That is the last code point of Unicode, so a listing
by name has all reserved names at its end. An engine lists reserved names like any others; the functions here list and
count a store as its user sees it, without them.
"""

from __future__ import annotations

from backtrail.engines.base import Engine, Head

RESERVED = "\U0010ffff"
NAMESPACE_END = "\x1f"  #: a reserved name with this in it belongs to a namespace
_LARGEST = 4096  # heads in a page, at most
_PAGES = 3  # that are read before another way is tried


def is_reserved(name: str) -> bool:
    """True if no user can have given a thread or lineage this name."""
    return name.startswith(RESERVED)


def namespace_of(name: str) -> str | None:
    """How every name in the namespace of this name or prefix begins, up to the character that ends the namespace; None
    if it is in none."""
    if not name.startswith(RESERVED):
        return None
    namespace, end, _ = name.partition(NAMESPACE_END)
    return namespace if end else None


async def user_threads(
    engine: Engine,
    *,
    prefix: str = "",
    after: str | None = None,
    limit: int | None = None,
    kind: str | None = None,
    newest_first: bool = False,
) -> list[Head]:
    """`Engine.threads` without reserved names; a page is full if there are enough threads to fill it."""
    found: list[Head] = []
    size, pages = limit, 0
    while limit is None or len(found) < limit:
        page = await engine.threads(prefix=prefix, after=after, limit=size, kind=kind, newest_first=newest_first)
        users = [head for head in page if not is_reserved(head.thread)]
        found += users
        reserved = len(users) < len(page)
        if size is None or len(page) < size or (reserved and not newest_first):
            break
        pages += 1
        if reserved and limit is not None and pages == _PAGES:
            few = await count_user_threads(engine)
            if few <= _LARGEST:  # read all of them, instead of those in namespaces that are newer
                by_name = await user_threads(engine, limit=few, kind=kind)
                return found + _older(by_name, page[-1])[: limit - len(found)]
        after, size = page[-1].thread, min(2 * size, _LARGEST)  # many reserved ones may lie in between
    return found[:limit]


def _older(heads: list[Head], than: Head) -> list[Head]:
    """Those of `heads` that come after `than`, newest first."""
    found = [head for head in heads if (head.updated, head.thread) < (than.updated, than.thread)]
    return sorted(found, key=lambda head: (head.updated, head.thread), reverse=True)


async def user_lineages(engine: Engine, *, after: str | None = None, limit: int | None = None) -> list[str]:
    """`Engine.lineages` without reserved names. They come last, so no page before the last one is short."""
    return [name for name in await engine.lineages(after=after, limit=limit) if not is_reserved(name)]


async def count_user_threads(engine: Engine) -> int:
    """`Engine.count` without reserved names."""
    return await engine.count() - await engine.count(RESERVED)


async def user_stats(engine: Engine) -> dict[str, int]:
    """`Engine.stats` without reserved records: the engine's own figures if there are at most a key ring and the
    janitor's record, else those of all other lineages."""
    reserved = await engine.threads(prefix=RESERVED, limit=3)
    if len(reserved) == 3 or any(NAMESPACE_END in head.thread for head in reserved):
        return await engine.stats_between("", RESERVED)
    figures = await engine.stats()
    return {**figures, "threads": figures["threads"] - len(reserved)}
