"""The status of a run, as part of its head's kind: `run` while it is running, else `run:waiting`, `run:finished`, ….

An engine lists the threads of one kind, newest first, at the cost of what it lists. A status in the kind makes runs
listable by status on every engine, and copies and mirrors carry it without knowing of it. The kind follows from the
state: each commit, and each move of the head, derives it from `state["status"]` at the head. (A repair that moves a run
to its newest sound checkpoint lists it as running: it can be resumed.)
"""

from __future__ import annotations

from typing import get_args

import msgspec

from backtrail.encode.row_format import Inline, Root
from backtrail.model import Status

RUN = "run"
STATUS = "status"  #: the key of the state
STATUSES: tuple[str, ...] = get_args(Status)
RUNNING: Status = "running"
#: The kinds that runs have, by status.
KINDS = {status: RUN if status == RUNNING else f"{RUN}:{status}" for status in STATUSES}
_STATUS_OF = {kind: status for status, kind in KINDS.items()}
_KIND_OF = {msgspec.msgpack.encode(status): kind for status, kind in KINDS.items()}


def base_kind(kind: str) -> str:
    """The kind without a status, as users see it."""
    return RUN if kind in _STATUS_OF else kind


def status_of(kind: str) -> Status:
    """The status of a run whose head has this kind."""
    return _STATUS_OF.get(kind, RUNNING)  # type: ignore[return-value]  # the keys of KINDS are its values


def kinds_of(kind: str | None) -> tuple[str | None, ...]:
    """The kinds that heads may have of the threads that a user asked for."""
    return tuple(KINDS.values()) if kind == RUN else (kind,)


def kind_at(kind: str, root: Root) -> str:
    """The kind of a head that points at this root, if its kind was `kind` before."""
    if kind not in _STATUS_OF:
        return kind
    node = (root.tree.children or {}).get(STATUS)
    return _KIND_OF.get(node.raw, RUN) if isinstance(node, Inline) else RUN
