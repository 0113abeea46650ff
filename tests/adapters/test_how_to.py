"""The how-to pages about frameworks, each read by somebody who does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import START, MessagesState, StateGraph

from backtrail.testing.servers import PostgresServer
from fix_reader import Reader

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.slow
def test_a_graph_leaves_its_own_savers(tmp_path: Path, postgres_server: PostgresServer) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [("ai", "noted")]})
    builder.add_edge(START, "agent")
    with PostgresSaver.from_conn_string(postgres_server.url) as saver:
        saver.setup()
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"messages": [("user", "hello")]}, {"configurable": {"thread_id": "on-postgres"}})
    real = {"postgresql://me:secret@localhost:5432/langgraph": postgres_server.url}
    Reader(tmp_path).read(HOW_TO / "leave-langgraph-savers.md", real)


@pytest.mark.slow
def test_agents_of_other_frameworks_leave_their_own_stores(tmp_path: Path) -> None:
    Reader(tmp_path).read(HOW_TO / "leave-framework-stores.md")
