"""LangGraph graphs for the adapters' tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


class Chat(TypedDict):
    messages: Annotated[list[Any], add_messages]


def chat(saver: Any, answer: Callable[[Any], Any] = lambda state: AIMessage("yes " * 100)) -> Any:
    """A graph of one node that adds an answer to the messages."""
    builder = StateGraph(Chat)
    builder.add_node("agent", lambda state: {"messages": [answer(state)]})
    builder.add_edge(START, "agent")
    builder.add_edge("agent", END)
    return builder.compile(checkpointer=saver)


def at(thread: str = "t", **more: Any) -> Any:
    """The config that names a thread."""
    return {"configurable": {"thread_id": thread, **more}}


def say(graph: Any, text: str, thread: str = "t") -> Any:
    """Run one turn of a chat."""
    return graph.invoke({"messages": [HumanMessage(text)]}, at(thread))
