"""Opens the context of a store from a URL and keywords, for `backtrail.open` and `backtrail.aio.open`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

from backtrail.encode.budget import check_budget
from backtrail.encode.frame import Frames
from backtrail.encode.record_types import Types
from backtrail.encode.seal import check_keys, require_crypto
from backtrail.engines import STORE_OPTIONS, Address, connect, parse
from backtrail.engines.base import Engine
from backtrail.engines.capabilities import StoredLocally, capability
from backtrail.engines.namespace import check_namespace, in_namespace
from backtrail.engines.server_url import public_url
from backtrail.errors import InvalidInput
from backtrail.history.context import Context
from backtrail.history.observation import ObservedEngine
from backtrail.history.retention import check_retention
from backtrail.replicate.settings import OPTIONS as SETTINGS
from backtrail.replicate.settings import Settings
from backtrail.telemetry import activate as activate_telemetry

MIRROR_OPTIONS = SETTINGS | {"replica"}


def open_context(target: Any, options: dict[str, Any], *, asynchronous: bool) -> Context:
    """The context of the store at `target`: a URL, a path, or an engine that is open already."""
    if isinstance(target, Engine):
        address = None
    elif isinstance(target, str | os.PathLike):
        text = os.fspath(target)
        if not isinstance(text, str) or not text:
            raise InvalidInput(f"open() takes a path or a URL as text, not {text!r}")
        if "\0" in text:
            raise InvalidInput(f"open() takes a path or a URL, and {public_url(text)!r} holds a NUL character")
        address = parse(text)
        _no_options_behind_a_path(address)
        twice = address.options.keys() & options.keys()
        if twice:
            raise InvalidInput(f"option {min(twice)!r} is given twice: in the URL and as a keyword")
        options = {**address.options, **options}
    else:
        raise InvalidInput(f"open() takes a path, a URL or an engine, not {type(target).__qualname__}")
    mirrored = _mirroring(target, options)
    options = {name: value for name, value in options.items() if name not in MIRROR_OPTIONS}
    ours = {name: value for name, value in options.items() if name in STORE_OPTIONS}
    theirs = {name: value for name, value in options.items() if name not in STORE_OPTIONS}
    # Everything that can be refused is checked before a file is created or a server is called.
    types = Types(ours.get("types", ()))
    asked = ours.get("compression_level")
    level = None if asked is None else _whole_number(asked, "compression_level")
    budget = check_budget(ours.get("budget"))
    frames = Frames(_none(ours.get("compression")), level, budget.bytes)
    detect = ours.get("detect", "exact")
    if detect not in ("exact", "identity"):
        raise InvalidInput(f"detect={detect!r} is unknown: use 'exact' or 'identity'")
    retention = check_retention(ours.get("retention"))
    keys = None if ours.get("key") is None else check_keys(ours["key"])
    if keys is not None:
        require_crypto()
    namespace = None if ours.get("namespace") is None else check_namespace(ours["namespace"])
    if address is None:
        if theirs:
            raise InvalidInput(f"an open engine takes no option {min(theirs)!r}: give it when you make the engine")
        engine = target
    else:
        engine = connect(address, theirs, asynchronous=asynchronous)
    if mirrored is not None:
        replica, settings = mirrored
        if not isinstance(replica, Engine):
            there = parse(os.fspath(replica))
            _no_options_behind_a_path(there)
            replica = connect(there, there.options, asynchronous=asynchronous)
        from backtrail.replicate.mirror import Mirror

        engine = mirror = Mirror(engine, replica, settings)
        if settings.spool is not None:
            from backtrail.replicate.spool import Spool
            from backtrail.replicate.spooling_engine import Spooled

            engine = Spooled(mirror, Spool.open(settings.spool, mirror.blocking))
    own_paths = _paths_of(target)
    if mirrored is not None and isinstance(settings.spool, str | os.PathLike):
        own_paths.append(Path(os.path.realpath(settings.spool)))
    telemetry = activate_telemetry()
    seen = in_namespace(engine, namespace)
    context = Context(
        seen if telemetry is None else ObservedEngine(seen, telemetry),
        types=types,
        frames=frames,
        detect=detect,
        retention=retention,
        keys=keys,
        budget=budget,
        telemetry=telemetry,
        blob_finders={"workspace": _find_files},
        own_paths=[os.fspath(path) for path in own_paths],
        place=_place(target, engine, ours | theirs),
    )
    if mirrored is not None:
        from backtrail.history.replication import MergeCodec  # a store without a replica does not load it

        mirror.use_codec(MergeCodec(context))
    return context


def _no_options_behind_a_path(address: Address) -> None:
    """`agents.db?durability=normal` would be a file of that name: only a URL has options."""
    path, mark, query = address.target.partition("?")
    if address.scheme != "sqlite" or not mark:
        return
    from backtrail.options import Options

    if query.partition("=")[0] in Options.__annotations__:
        raise InvalidInput(
            f"what follows ? behind {path!r} looks like options, which only a URL has: write sqlite:{path}?…"
        )


def _mirroring(target: Any, options: dict[str, Any]) -> tuple[Any, Settings] | None:
    """The replica and the mirror's settings, if there is a replica; all of it is checked here."""
    given = {name: value for name, value in options.items() if name in SETTINGS}
    replica = options.get("replica")
    if replica is None:
        if given:
            raise InvalidInput(f"{min(given)}= needs replica=: there is nothing to mirror to")
        return None
    if not isinstance(replica, str | os.PathLike | Engine):
        raise InvalidInput(f"replica= takes a path, a URL or an engine, not {type(replica).__qualname__}")
    if isinstance(replica, Engine) is isinstance(target, Engine) and _same(target, replica):
        shown = public_url(os.fspath(replica)) if not isinstance(replica, Engine) else type(replica).__name__
        raise InvalidInput(f"replica={shown!r} is the store itself: a mirror needs two stores")
    settings = Settings.read(given)
    if settings.spool is not None and not isinstance(settings.spool, Engine):
        from backtrail.replicate.spool import check_directory

        check_directory(settings.spool, [*_paths_of(target), *_paths_of(replica)])
    return replica, settings


def _paths_of(target: Any) -> list[Path]:
    """The file or directory of a local store; none for any other."""
    if isinstance(target, Engine):
        local = capability(target, StoredLocally)
        return [] if local is None else [Path(os.path.realpath(local.path))]
    address = parse(os.fspath(target))
    return [Path(os.path.realpath(address.target))] if address.scheme in ("sqlite", "jsonl") else []


def _place(target: Any, engine: Engine, options: dict[str, Any]) -> str | None:
    """A text that tells a store from others on this machine, without any secret; None for a store in memory."""
    if not engine.properties.durable:
        return None
    paths = _paths_of(target)
    if paths:
        place = "file:" + quote_from_bytes(os.fsencode(paths[0]))
    elif isinstance(target, Engine):
        place = f"engine:{type(target).__module__}.{type(target).__qualname__}"
    else:
        place = public_url(os.fspath(target))
    parts = {name: str(options[name]) for name in ("namespace", "prefix", "schema") if options.get(name) is not None}
    return f"{place}?{urlencode(parts)}" if parts else place


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Engine):
        return one is other
    here, there = parse(os.fspath(one)), parse(os.fspath(other))
    if here.scheme != there.scheme or here.scheme == "memory":
        return False
    if here.scheme in ("sqlite", "jsonl"):
        return os.path.realpath(here.target) == os.path.realpath(there.target)
    return here.target == there.target


async def _find_files(context: Context, thread: str, living: list[Any]) -> set[bytes]:
    """The blobs of files that the snapshots of a workspace need."""
    from backtrail.workspace import reachable_blobs  # a store without workspaces does not load them

    return await reachable_blobs(context, thread, living)


def _none(value: Any) -> Any:
    return None if value in ("", "none", "None") else value


def _whole_number(value: Any, name: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name}={value!r} is not a whole number") from None
