"""Engines store bytes. `base` is the contract that all of them implement; each subpackage is one engine.

A URL's scheme selects the engine: from a table of our own engines, which are imported on first use, or from the
entry-point group `backtrail.engines` for those of other packages.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from backtrail.engines.base import Engine
from backtrail.engines.server_url import public_url
from backtrail.errors import InvalidInput, MissingExtra

GROUP = "backtrail.engines"


class Scheme(NamedTuple):
    """An engine's class, the extra that installs its client, and True if it takes the whole URL instead of its path."""

    module: str
    name: str
    extra: str | None
    whole_url: bool


_REDIS = Scheme("backtrail.engines.redis", "RedisEngine", "redis", True)
_POSTGRES = Scheme("backtrail.engines.postgres", "PostgresEngine", "postgres", True)
SCHEMES: dict[str, Scheme] = {
    "memory": Scheme("backtrail.engines.memory", "MemoryEngine", None, False),
    "sqlite": Scheme("backtrail.engines.sqlite", "SQLiteEngine", None, False),
    "jsonl": Scheme("backtrail.engines.jsonl", "JSONLEngine", None, False),
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "redis+cluster": _REDIS,
    "rediss+cluster": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+sentinel": _REDIS,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
}
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):")  # two letters at least: C:\… is a path


class Option(NamedTuple):
    """An option of an engine: a keyword-only parameter of its class or function."""

    default: Any
    annotation: str


class Address(NamedTuple):
    """The parts of a URL: its scheme, the target that is passed to the engine, and the options after the question
    mark."""

    scheme: str
    target: str
    options: dict[str, str]

    def __repr__(self) -> str:  # without passwords and keys
        return f"Address({self.scheme!r}, {public_url(self.target)!r})"


def parse(url: str) -> Address:
    """Parse a URL or a path."""
    match = _SCHEME.match(url)
    if match is None:
        return Address("sqlite", url, {})
    scheme = match[1]
    rest, mark, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True)) if mark else {}
    if not all(name.isidentifier() for name in options):
        # The name is not quoted: it may be a part of a password that holds an unescaped question mark.
        raise InvalidInput(f"what follows ? in the URL of this {scheme}: store is not name=value&name=value")
    if scheme in SCHEMES and not SCHEMES[scheme].whole_url:
        rest = rest[match.end() :]
        if rest.startswith("//"):
            rest = rest[2:]
            # sqlite:///relative and sqlite:////absolute, the usual convention
            rest = rest.removeprefix("/")
    return Address(scheme, rest, options)


def connect(address: Address, options: dict[str, Any], *, asynchronous: bool) -> Engine:
    """Open the engine of an address with its own options. An unknown scheme or option raises an error that lists the
    known ones."""
    make, takes_target = _factory(address)
    known = _own_options(make) if address.scheme in SCHEMES else _options(make)
    chooses = known.pop("asynchronous", None) is not None
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InvalidInput(
            f"{address.scheme}: has no option {unknown[0]!r}; it has {', '.join(sorted(known)) or 'none'}, "
            f"and every store has {', '.join(sorted(STORE_OPTIONS))}"
        )
    given = {name: _convert(name, value, known[name]) for name, value in options.items()}
    if chooses:
        given["asynchronous"] = asynchronous
    engine = make(address.target, **given) if takes_target else make(**given)
    assert isinstance(engine, Engine)
    return engine


STORE_OPTIONS = frozenset(
    {"types", "retention", "compression", "compression_level", "detect", "key", "namespace", "budget"}
)


def _factory(address: Address) -> tuple[Callable[..., Any], bool]:
    scheme = SCHEMES.get(address.scheme)
    if scheme is None:
        from importlib.metadata import entry_points  # slow to import, and most stores do not need it

        found = entry_points(group=GROUP, name=address.scheme)
        if not found:
            others = {point.name for point in entry_points(group=GROUP)}
            known = ", ".join(sorted(f"{name}:" for name in {*SCHEMES, *others}))
            raise InvalidInput(f"{address.scheme}: is not a store that backtrail knows; use a path, or one of {known}")
        return next(iter(found)).load(), True
    try:
        made: Callable[..., Any] = getattr(importlib.import_module(scheme.module), scheme.name)
    except ImportError as error:
        if scheme.extra is None:
            raise
        raise MissingExtra(f"{address.scheme}:", scheme.extra) from error
    return made, address.scheme != "memory"


def _own_options(make: Callable[..., Any]) -> dict[str, Option]:
    """The options of one of our engines, which all have defaults: without `inspect`, which is slow to import."""
    start = make.__init__
    defaults = getattr(start, "__kwdefaults__", None) or {}
    return {name: Option(default, str(start.__annotations__[name])) for name, default in defaults.items()}


def _options(make: Callable[..., Any]) -> dict[str, Option]:
    """The options of an engine of another package."""
    import inspect

    parameters = inspect.signature(make).parameters.values()
    options = (p for p in parameters if p.kind is p.KEYWORD_ONLY or p.name == "asynchronous")
    return {p.name: Option(p.default, str(p.annotation)) for p in options}


def _convert(name: str, value: Any, option: Option) -> Any:
    """Text from a URL, converted to the type of the option's default."""
    default = option.default
    # A password is text even if it looks like a number.
    if not isinstance(value, str) or isinstance(default, str) or option.annotation.startswith("str"):
        return value
    try:
        if isinstance(default, bool) or value.lower() in ("true", "false"):
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[value.lower()]
        if isinstance(default, int):
            return int(value)
        if isinstance(default, float):
            return float(value)
    except (ValueError, KeyError):
        raise InvalidInput(f"{name}={value!r} is not a {type(default).__name__}") from None
    if default is None:
        for convert in (int, float):
            try:
                return convert(value)
            except ValueError:
                continue
    return value
