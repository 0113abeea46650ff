"""A LangGraph agent on backtrail: it goes on in another process, and a wrong turn becomes a fork.

    python examples/langgraph_agent.py

`BacktrailSaver` is the only line about backtrail that the graph needs. It needs the extra `langgraph`. It prints:

    first process:  It is 3 degrees in Oslo.
    second process: You asked about Oslo before.
    6 messages in 8 steps
    the fork, from before the second question: It is 21 degrees in Rome.
    the thread still ends with: You asked about Oslo before.
    added messages[4] to [7] in the fork
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import backtrail
from backtrail.adapters.langgraph import BacktrailSaver


@tool
def weather(city: str) -> str:
    """Tells the temperature in a city."""
    return f"It is {({'Oslo': 3, 'Rome': 21})[city]} degrees in {city}."


def reply(messages: list[AnyMessage]) -> AIMessage:
    """A model that answers from a script; yours is a chat model with `bind_tools`."""
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return AIMessage(str(last.content))
    for city in ("Oslo", "Rome"):
        if city in last.text:
            call = {"name": "weather", "args": {"city": city}, "id": f"call-{len(messages)}", "type": "tool_call"}
            return AIMessage("", tool_calls=[call])
    asked = next(message.text for message in messages if isinstance(message, HumanMessage))
    return AIMessage(f"You asked about {asked.split()[-1].rstrip('?')} before.")


def agent(state: MessagesState) -> dict[str, Any]:
    return {"messages": [reply(state["messages"])]}


def build(store: backtrail.Store) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([weather]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=BacktrailSaver(store))


def ask(graph: Any, thread: str, text: str) -> str:
    found = graph.invoke({"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": thread}})
    return str(found["messages"][-1].content)


def main(path: Path) -> None:
    with backtrail.open(path) as store:
        print("first process: ", ask(build(store), "ann", "How is the weather in Oslo?"))
    with backtrail.open(path) as store:  # as if in another process: nothing is kept but the store
        graph = build(store)
        thread = store.thread("ann")  # a LangGraph thread is a backtrail thread of the same name
        before = thread.get("@")
        print("second process:", ask(graph, "ann", "What did I ask before?"))
        print(len(thread.load()["messages"]), "messages in", thread.step, "steps")

        fork = thread.fork("ann-again", at=before)  # and a fork is a LangGraph thread
        print("the fork, from before the second question:", ask(graph, fork.id, "And in Rome?"))
        print("the thread still ends with:", thread.load()["messages"][-1]["content"])
        added = [change.path for change in fork.diff(before).changes if change.path.startswith("messages")]
        print("added", added[0], "to", added[-1].removeprefix("messages"), "in the fork")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder, "backtrail.db"))
