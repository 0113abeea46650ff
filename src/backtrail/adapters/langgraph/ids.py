"""LangGraph's ids <-> backtrail's: threads, namespaces, checkpoints and channels.

Each (thread, namespace) of LangGraph has one backtrail thread for its checkpoints and one for its pending writes. The
root namespace of thread `42` has the backtrail threads `42` and `42//writes`.
"""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple, cast

from langchain_core.runnables import RunnableConfig

from backtrail.adapters.langgraph.checkpoint_note import note_of
from backtrail.adapters.langgraph.message_codec import RESERVED_KEY
from backtrail.adapters.thread_ids import join_parts, split_parts
from backtrail.model import Checkpoint

_UUID_NAMESPACE: Final = uuid.UUID("0bd8c1a1-2cf4-5e0c-9f63-6c1e6e1a54c7")


class GraphThread(NamedTuple):
    """One namespace of one LangGraph thread."""

    thread_id: str
    ns: str

    @classmethod
    def from_config(cls, config: RunnableConfig) -> GraphThread:
        """The namespace that a config names."""
        configurable = config["configurable"]
        return cls(str(configurable["thread_id"]), configurable.get("checkpoint_ns") or "")

    @classmethod
    def from_backtrail_thread(cls, id: str) -> GraphThread | None:
        """The namespace whose checkpoints a backtrail thread holds; None if it does not hold checkpoints."""
        parts = split_parts(id)
        return cls(parts[0], parts[1] if len(parts) == 2 else "") if len(parts) <= 2 else None

    @property
    def checkpoints(self) -> str:
        """The id of the backtrail thread of its checkpoints."""
        return join_parts(self.thread_id, self.ns) if self.ns else join_parts(self.thread_id)

    @property
    def writes(self) -> str:
        """The id of the backtrail thread of its pending writes."""
        return join_parts(self.thread_id, self.ns, "writes")

    def config(self, checkpoint_id: str) -> RunnableConfig:
        """The config that names one of its checkpoints."""
        return {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": self.ns, "checkpoint_id": checkpoint_id}}


def backtrail_id(graph_id: str) -> str:
    """backtrail's id of a checkpoint: the same as LangGraph's if that is a UUID, as it nearly always is."""
    try:
        if str(uuid.UUID(graph_id)) == graph_id:
            return graph_id
    except ValueError:
        return str(uuid.uuid5(_UUID_NAMESPACE, graph_id))
    return str(uuid.uuid5(_UUID_NAMESPACE, graph_id))


def short_id(text: str) -> uuid.UUID | str:
    """An id as it is stored beside others: a UUID takes half the bytes of its text."""
    return uuid.UUID(text) if backtrail_id(text) == text else text


def standin_id(graph_id: str) -> str:
    """backtrail's id of the checkpoint that stands in for one while that is being replaced."""
    return str(uuid.uuid5(_UUID_NAMESPACE, f"{graph_id}//standin"))


def graph_id(checkpoint: Checkpoint) -> str:
    """LangGraph's id of a checkpoint."""
    return cast("str", note_of(checkpoint).get("id", checkpoint.id))


def writes_id(graph_id: str, number: int) -> str:
    """backtrail's id of the `number`-th record of a checkpoint's pending writes, which is found without a search."""
    return str(uuid.uuid5(uuid.UUID(backtrail_id(graph_id)), str(number)))


def state_key(channel: str) -> str:
    """The key of a channel in the state: its name, unless that begins like the reserved key."""
    return f"{RESERVED_KEY}:{channel}" if channel.startswith(RESERVED_KEY) else channel


def channel_name(state_key: str) -> str:
    """The inverse of `state_key`."""
    return state_key.removeprefix(f"{RESERVED_KEY}:")
