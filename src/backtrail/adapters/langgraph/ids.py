"""LangGraph's names <-> backtrail's: threads, namespaces and checkpoint ids.

One backtrail thread per (thread, namespace), and one beside it for the pending writes. The root namespace of thread
`42` is simply the backtrail thread `42`, its pending writes are `42//writes`.
"""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple, cast

from langchain_core.runnables import RunnableConfig

from backtrail.adapters.ids import join, split
from backtrail.adapters.langgraph.message_codec import MARK
from backtrail.model import Checkpoint

_IDS: Final = uuid.UUID("0bd8c1a1-2cf4-5e0c-9f63-6c1e6e1a54c7")


class GraphThread(NamedTuple):
    """One namespace of one LangGraph thread."""

    thread_id: str
    ns: str

    @property
    def name(self) -> str:
        """The backtrail thread that holds its checkpoints."""
        return join(self.thread_id, self.ns) if self.ns else join(self.thread_id)

    @property
    def writes(self) -> str:
        """The backtrail thread that holds its pending writes."""
        return join(self.thread_id, self.ns, "writes")


def place_of(name: str) -> GraphThread | None:
    """The place whose checkpoints a backtrail thread holds, if it holds any."""
    parts = split(name)
    return GraphThread(parts[0], parts[1] if len(parts) == 2 else "") if len(parts) <= 2 else None


def key_of(checkpoint_id: str) -> str:
    """The UUID under which backtrail keeps a checkpoint: its own id if that is one, as it nearly always is."""
    try:
        if str(uuid.UUID(checkpoint_id)) == checkpoint_id:
            return checkpoint_id
    except ValueError:
        return str(uuid.uuid5(_IDS, checkpoint_id))
    return str(uuid.uuid5(_IDS, checkpoint_id))


def writes_key(checkpoint_id: str, number: int) -> str:
    """The id of the `number`-th record of a checkpoint's pending writes: it can be looked up without a search."""
    return str(uuid.uuid5(uuid.UUID(key_of(checkpoint_id)), str(number)))


def place_in(config: RunnableConfig) -> GraphThread:
    conf = config["configurable"]
    return GraphThread(str(conf["thread_id"]), conf.get("checkpoint_ns") or "")


def config_of(place: GraphThread, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": place.thread_id, "checkpoint_ns": place.ns, "checkpoint_id": id}}


def graph_id(checkpoint: Checkpoint) -> str:
    """LangGraph's id of a checkpoint."""
    return cast("str", checkpoint.custom.get(MARK, {}).get("id", checkpoint.id))


def key_for(channel: str) -> str:
    """The key of a channel in the state: its name, unless that is the reserved one."""
    return f"{MARK}:{channel}" if channel.startswith(MARK) else channel


def channel_of(key: str) -> str:
    return key.removeprefix(f"{MARK}:") if key.startswith(f"{MARK}:") else key
