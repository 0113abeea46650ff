"""Registered types: converts a record (dataclass, pydantic model, msgspec.Struct, attrs class, named tuple, Enum) to a
name and fields, and back.

Only registered classes are ever instantiated: a name in the data is looked up in this table and nowhere else. A name
that is not in it loads as `Unregistered`, a plain value that holds the name and fields and can be saved again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from backtrail.errors import InvalidInput

if TYPE_CHECKING:
    from dataclasses import Field

T = TypeVar("T")
Fields = dict[str, Any]


class Unregistered(msgspec.Struct, frozen=True):
    """A value of a type that is not registered in this store: register it with `types=[…]` to load it as that type."""

    type: str
    value: Any

    def __post_init__(self) -> None:
        if type(self.type) is not str:  # such a value could be saved, but not loaded
            raise InvalidInput(f"the type of an Unregistered must be a str, not {type(self.type).__qualname__}")

    def __hash__(self) -> int:
        """Needed because a member of a set or a key of a dict may be of a type that is not registered."""
        return hash((self.type, _hashable(self.value)))


def _hashable(value: Any) -> Any:
    """A hashable stand-in for a value; equal values have equal stand-ins."""
    if isinstance(value, dict):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, set):
        return frozenset(value)
    return bytes(value) if isinstance(value, bytearray) else value


def is_name(value: object) -> bool:
    """True for what the name of a type can be: any text with a UTF-8 form."""
    try:
        return type(value) is str and bool(value.encode())
    except UnicodeEncodeError:
        return False


class Unreadable(Exception):
    """The fields of a value of a registered class could not be read."""


class Kind(msgspec.Struct, frozen=True):
    """One registered class: its name, and the functions that read a value's fields and build a value."""

    name: str
    cls: type
    fields: Callable[[Any], Fields]
    build: Callable[[Fields], Any]

    def take_apart(self, value: Any) -> Fields:
        """The fields of a value; `Unreadable` if its class raises an error."""
        try:
            return self.fields(value)
        except Exception as error:  # whatever a user's class raises: the caller adds the path
            raise Unreadable(f"is a {self.cls.__qualname__} whose fields cannot be read: {error!r}") from error


class Types:
    """The classes of one store, by name and by class. `with_type` returns an extended table; tables are immutable."""

    def __init__(self, types: Iterable[type] | Mapping[str, type] = ()) -> None:
        self.by_name: dict[str, Kind] = {}
        self.by_class: dict[type, Kind] = {}
        named: Mapping[str, type] = types if isinstance(types, Mapping) else {}
        listed: Iterable[type] = () if isinstance(types, Mapping) else types
        if isinstance(types, type) or not isinstance(types, Iterable):
            raise InvalidInput(f"types= takes a list of classes, or a dict of them by name, not {types!r:.80}")
        for name, cls in [*named.items(), *((wire_name(cls), cls) for cls in listed)]:
            self._add(name, cls)

    def _add(self, name: str, cls: type) -> None:
        if not is_name(name):
            raise InvalidInput(f"types= has the name {name!r:.80}: a name is text")
        other = self.by_name.get(name)
        if other is not None and other.cls is not cls:
            raise InvalidInput(f"two registered types are called {name!r}: give names with types={{'name': cls, …}}")
        kind = _kind(name, cls)
        self.by_name[name] = kind
        self.by_class[cls] = kind

    @property
    def lookalikes(self) -> bool:
        """True if a registered type has values that are equal to plain ones: a str Enum, an IntEnum, a named tuple."""
        return any(issubclass(cls, str | int | float | tuple) for cls in self.by_class)

    def with_type(self, cls: type) -> Types:
        """This table with `cls` added; the same table if `cls` is registered already or is not a record."""
        if not is_record(cls) or cls in self.by_class:
            return self
        wider = Types({name: kind.cls for name, kind in self.by_name.items()})
        wider._add(wire_name(cls), cls)
        return wider


def wire_name(cls: type) -> str:
    """The name under which a class is stored: its qualified name, which survives a move to another module."""
    if not isinstance(cls, type):
        raise InvalidInput(f"types= takes classes, not {cls!r}")
    return cls.__qualname__.rpartition("<locals>.")[2]


def is_record(cls: object) -> bool:
    """True if instances of `cls` are made of named fields (an Enum is not)."""
    return isinstance(cls, type) and (
        _is_dataclass(cls)
        or issubclass(cls, msgspec.Struct)
        or hasattr(cls, "__attrs_attrs__")
        or hasattr(cls, "model_fields")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def _is_dataclass(cls: type) -> bool:
    """As `dataclasses.is_dataclass`, which is slow to import, and most stores have no registered types."""
    return hasattr(cls, "__dataclass_fields__")


def conform(value: Any, wanted: type[T]) -> T:
    """`value` as a `wanted`, validated: for `load(as_=…)` and `thread(type=…)`."""
    if type(value) is wanted:
        return value
    validate = getattr(wanted, "model_validate", None)
    try:
        if validate is not None:
            return cast("T", validate(value))
        return msgspec.convert(value, wanted, from_attributes=True)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        name = getattr(wanted, "__name__", repr(wanted))
        raise InvalidInput(f"the saved state is not a {name}: {error}") from error


def _kind(name: str, cls: type) -> Kind:
    if issubclass(cls, enum.Enum):
        return Kind(name, cls, lambda value: {"value": value.value}, lambda fields: cls(fields["value"]))
    if hasattr(cls, "model_fields") and hasattr(cls, "model_validate"):
        return Kind(name, cls, _pydantic_fields, _pydantic_builder(cls))
    if issubclass(cls, msgspec.Struct):
        names = cls.__struct_fields__
        return Kind(name, cls, lambda value: {key: getattr(value, key) for key in names}, _keyword_builder(cls, names))
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return Kind(name, cls, lambda value: value._asdict(), _keyword_builder(cls, cls._fields))
    if _is_dataclass(cls):
        from dataclasses import fields

        defaults = {f.name: _dataclass_default(f) for f in fields(cast("Any", cls))}
        return Kind(name, cls, _attribute_reader(defaults), _field_builder(cls, defaults))
    if hasattr(cls, "__attrs_attrs__"):
        defaults = {f.name: _attrs_default(f) for f in cls.__attrs_attrs__}
        return Kind(name, cls, _attribute_reader(defaults), _field_builder(cls, defaults))
    raise InvalidInput(
        f"{cls.__qualname__} cannot be registered: it is not a dataclass, pydantic model, msgspec.Struct, attrs class, "
        "named tuple or Enum"
    )


_Default = Callable[[], Any] | None


def _dataclass_default(field: Field[Any]) -> _Default:
    from dataclasses import MISSING

    if field.default is not MISSING:
        return lambda: field.default
    return None if field.default_factory is MISSING else field.default_factory


def _attrs_default(field: Any) -> _Default:
    default = field.default
    if type(default).__name__ == "Factory" and not default.takes_self:
        return default.factory  # type: ignore[no-any-return]  # attrs is optional and so untyped here
    return None if repr(default) == "NOTHING" else lambda: default


def _pydantic_fields(value: Any) -> Fields:
    fields = {key: getattr(value, key) for key in type(value).model_fields}
    return fields | (value.model_extra or {})


def _pydantic_builder(cls: Any) -> Callable[[Fields], Any]:
    """Builds a model by field names, under which the fields were saved, even if the model has aliases."""
    import inspect  # slow, as `dataclasses`

    if "by_name" in inspect.signature(cls.model_validate).parameters:
        return lambda fields: cls.model_validate(fields, by_alias=False, by_name=True)
    return cls.model_validate  # type: ignore[no-any-return]  # pydantic is optional and so untyped here


def _attribute_reader(defaults: Mapping[str, _Default]) -> Callable[[Any], Fields]:
    names = tuple(defaults)
    return lambda value: {name: getattr(value, name) for name in names}


def _keyword_builder(cls: type, names: tuple[str, ...]) -> Callable[[Fields], Any]:
    known = frozenset(names)
    return lambda fields: cls(**{key: value for key, value in fields.items() if key in known})


def _field_builder(cls: type, defaults: Mapping[str, _Default]) -> Callable[[Fields], Any]:
    """Sets the saved fields without running `__init__`: a load restores a value, it does not recompute it. A field that
    was added to the class later gets its default; one that was removed is left out."""

    def build(fields: Fields) -> Any:
        record: Any = object.__new__(cls)
        for name, default in defaults.items():
            if name in fields:
                object.__setattr__(record, name, fields[name])
            elif default is not None:
                object.__setattr__(record, name, default())
            else:
                raise InvalidInput(
                    f"the saved {cls.__qualname__} has no field {name!r}, and the class no default for it"
                )
        return record

    return build
