"""The store of the commands that are about coding agents: the user's, unless another one is named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backtrail import Store
    from backtrail.cli.context import CommandContext


@contextlib.contextmanager
def agent_store(context: CommandContext, *, create: bool = False) -> Iterator[Store]:
    """The store that `-s` names, or else that of the user's agents."""
    if context.url is not None:
        with context.store(create=create) as store:
            yield store
        return
    from backtrail.agents.user_store import open_user_store

    with open_user_store(create=create) as store:
        yield store
