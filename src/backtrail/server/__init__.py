"""The web inspector and the JSON API behind it: a Starlette application over one open store.

    from backtrail.server import application
    app = application(store, token="…")

`backtrail ui` starts it on 127.0.0.1. Needs the extra `backtrail[ui]`. `routes` is the table of operations, `handlers`
carries them out, with the types of `requests` and `responses`; `middleware` checks every request, `sse` sends changes
to open pages; `static/` is the page: plain HTML, CSS and JavaScript.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from backtrail.store import Store


def application(store: Store, **options: Any) -> Starlette:
    """The application for a store; see `backtrail.server.app.application` for the options."""
    from backtrail.errors import MissingExtra

    try:
        from backtrail.server import app
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "starlette":
            raise MissingExtra("the inspector", "ui") from error
        raise
    return app.application(store, **options)
