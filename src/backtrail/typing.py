"""The types of arguments that many public methods share, for annotations in user code.

    from backtrail.typing import At, Files, State

    def resume(thread: backtrail.Thread, at: At | None = None) -> State: ...

`backtrail.Thread` without a parameter is a thread whose states are dicts, and `backtrail.Session` a session that raises
its errors; that needs type variables with defaults, which Python itself has from 3.13 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypedDict, TypeVar
from uuid import UUID

import msgspec

from backtrail.engines.base import Engine
from backtrail.history.file_refs import FileSource
from backtrail.model import At, Progress, Retention, Status

if TYPE_CHECKING:
    from typing import Never

    import typing_extensions

    S = typing_extensions.TypeVar("S", default=dict[str, Any])
    F_co = typing_extensions.TypeVar("F_co", bound=None, default=Never, covariant=True)
else:
    S = TypeVar("S")  #: the type of a thread's states
    F_co = TypeVar("F_co", covariant=True)  #: None, if a session's failed writes return None; else Never

__all__ = ["At", "Expect", "Facts", "Files", "OnConflict", "Progress", "Record", "State", "Status", "Statuses", "Target"]


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _AttrsClass(Protocol):
    __attrs_attrs__: ClassVar[Any]


class _PydanticModel(Protocol):
    __pydantic_validator__: ClassVar[Any]


class _NamedTuple(Protocol):
    def _asdict(self) -> dict[str, Any]: ...


Record: TypeAlias = _Dataclass | _AttrsClass | _PydanticModel | _NamedTuple | msgspec.Struct
"""An instance of a class that `types=` can register."""

State: TypeAlias = Mapping[str, Any] | Record
"""A state of a thread without a type: a dict (a TypedDict included, hence Mapping) or a registered record."""

Files: TypeAlias = FileSource | str
"""The files that belong to a checkpoint: a Workspace, of which a snapshot is taken, one of its snapshots, or the text
in another checkpoint's `files`."""

Expect: TypeAlias = At | None
"""The head that a save expects: a checkpoint, by any of its names, or None for a thread that does not exist yet."""

OnConflict: TypeAlias = Literal["raise", "branch"]
Statuses: TypeAlias = Status | Literal["all"] | Iterable[Status]
"""Statuses of runs that a listing is asked for."""

Policy: TypeAlias = Retention | str | None
"""A retention policy, or its text such as "keep_last=10,max_age=24h"."""

Key: TypeAlias = bytes | bytearray | str
"""An encryption key: 32 bytes, or their hex or base64 text."""

Target: TypeAlias = str | PathLike[str] | Engine
"""The store that `open` opens: a path, a URL, or an engine that is open already."""


class Facts(TypedDict, total=False):
    """The arguments of a save besides the state."""

    label: str | None
    tags: Iterable[str]
    custom: Mapping[str, Any] | None
    files: Files | None
    expect: Expect | msgspec.UnsetType
    id: UUID | str | None
    on_conflict: OnConflict
    parent: Expect | msgspec.UnsetType
