"""The metadata that the caller of a save passes: label, tags, custom fields, files and id, checked before the save."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from backtrail.encode.values import Values
from backtrail.errors import InvalidInput
from backtrail.history.validation import MAX_CUSTOM, check_custom, check_label, check_tags

OnConflict = Literal["raise", "branch"]


class Facts(msgspec.Struct, frozen=True):
    """Facts that were checked, ready to be stored."""

    label: str | None = None
    tags: tuple[str, ...] = ()
    custom: bytes = b""  #: an encoded dict
    files: str | None = None  #: a reference, see `file_refs`
    id: bytes | None = None
    created: int | None = None  #: microseconds since 1970, of a step that was made elsewhere; None: now

    @classmethod
    def check(
        cls,
        values: Values,
        label: Any,
        tags: Any,
        custom: Any,
        files: str | None,
        id: Any,
        created_at: Any = None,
    ) -> Facts:
        """The facts of these arguments; `InvalidInput` names one that is wrong."""
        return cls(
            check_label(label),
            check_tags(tags),
            pack_custom(values, custom),
            files,
            None if id is None else check_id(id),
            None if created_at is None else _check_time(created_at),
        )


NO_FACTS = Facts()


def pack_custom(values: Values, custom: Any) -> bytes:
    """The bytes of a custom dict; none for an empty one."""
    fields = check_custom(custom)
    data = values.encode(fields, "custom") if fields else b""
    if len(data) > MAX_CUSTOM:
        raise InvalidInput(
            f"custom takes {len(data):,} bytes, more than {MAX_CUSTOM:,}: keep what is large in the state"
        )
    return data


def _check_time(value: Any) -> int:
    """The microseconds since 1970 of a time that a caller gave."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(f"created_at={value!r:.80} is not a datetime with a time zone")
    micros = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if micros < 0:
        raise InvalidInput(f"created_at={value!r:.80} is before 1970")
    return micros


def check_id(value: Any) -> bytes:
    """The 16 bytes of an id that a caller chose for a new checkpoint."""
    try:
        return value.bytes if isinstance(value, uuid.UUID) else uuid.UUID(value).bytes
    except (ValueError, AttributeError, TypeError):
        raise InvalidInput(f"id={value!r:.80} is not a UUID: leave it out, and one is made") from None
