"""Empty stores for a framework's own tests, on the engine and API that the runner names in the environment.

The frameworks' tests make their stores with a plain call, in or out of an event loop, and look into them with plain
calls. `new_store` and `finish` are such calls. Over an `AsyncStore` they run on a loop of their own in another thread,
which an `AsyncStore` over a blocking engine allows.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import secrets
import tempfile
import threading
from pathlib import Path
from typing import Any

import backtrail
import backtrail.aio

ENGINE, _, API = os.environ["BACKTRAIL_SUITE_STORE"].partition("-")
URL = os.environ.get("BACKTRAIL_SUITE_URL", "")  # of the server, for Redis and PostgreSQL

_directory = tempfile.TemporaryDirectory()
_numbers = itertools.count()
_opened: list[Any] = []
_uses = 0
_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, daemon=True).start()


def new_address() -> tuple[str, dict[str, Any]]:
    """The URL of a store that nobody has used, and the options that make it quick. Some tests count random UUIDs, so
    none is used up here."""
    number = next(_numbers)
    match ENGINE:
        case "memory":
            return "memory:", {}
        case "sqlite":
            return str(Path(_directory.name, f"{number}.db")), {"durability": "normal"}
        case "jsonl":
            return f"jsonl:{Path(_directory.name, str(number))}", {"durability": "normal"}
        case "redis":
            return URL, {"prefix": f"suite:{secrets.token_hex(9)}"}
        case _:
            return URL, {"schema": f"suite_{secrets.token_hex(9)}"}


def new_store() -> Any:
    """An empty store, closed when the test has ended."""
    url, options = new_address()
    store = backtrail.open(url, **options) if API == "blocking" else finish(backtrail.aio.open(url, **options))
    _opened.append(store)
    return store


def finish(result: Any) -> Any:
    """The result of a call of a store."""
    return asyncio.run_coroutine_threadsafe(result, _loop).result() if inspect.isawaitable(result) else result


def end_test() -> None:
    """Close the stores of the test that has ended, and count it if it had any."""
    global _uses
    _uses += bool(_opened)
    Path(os.environ["BACKTRAIL_SUITE_USES"], "uses").write_text(str(_uses), encoding="utf-8")
    while _opened:
        finish(_opened.pop().close())
