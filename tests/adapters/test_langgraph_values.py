"""Values of LangGraph channels on backtrail: messages, objects of other classes, other serializers."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph

from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.adapters.langgraph.message_codec import MESSAGE_CLASSES, RESERVED_KEY, MessageCodec, clone_message
from backtrail.errors import InvalidInput
from fix_graphs import at, chat, say


@dataclasses.dataclass
class Secret:
    ran: str = "constructed"


NONE_ALLOWED: Any = {"allowed_msgpack_modules": None}


def test_which_classes_are_rebuilt_is_langgraphs_policy_unless_types_restrict_it(store: Any) -> None:
    class Holds(TypedDict):
        thing: Any

    builder = StateGraph(Holds)
    builder.add_node("n", lambda state: {"thing": Secret("mine")})
    builder.add_edge(START, "n")
    builder.compile(checkpointer=BacktrailSaver(store)).invoke({"thing": None}, at())
    for strict in (BacktrailSaver(store, types=[]), BacktrailSaver(store, serde=JsonPlusSerializer(**NONE_ALLOWED))):
        assert strict.get_tuple(at()).checkpoint["channel_values"]["thing"] == {"ran": "mine"}
    for allowing in (BacktrailSaver(store), BacktrailSaver(store, types=[Secret])):
        assert allowing.get_tuple(at()).checkpoint["channel_values"]["thing"] == Secret("mine")
    with pytest.raises(InvalidInput, match="cannot be given together"):
        BacktrailSaver(store, types=[Secret], serde=JsonPlusSerializer())


def test_an_object_that_cannot_be_encoded_is_refused_and_nothing_is_lost(store: Any) -> None:
    saver = BacktrailSaver(store)
    graph = chat(saver)
    say(graph, "one")
    before = store.thread("t").head.id
    checkpoint = {**empty_checkpoint(), "channel_values": {"bad": object()}, "channel_versions": {"bad": "1"}}
    with pytest.raises(TypeError):
        saver.put(at(checkpoint_ns="", checkpoint_id=before), checkpoint, {}, {"bad": "1"})
    assert store.thread("t").head.id == before
    assert len(say(graph, "two")["messages"]) == 4


def test_a_message_that_only_the_serializer_can_encode_comes_back(store: Any) -> None:
    artifact = {"when": uuid.UUID(int=7), "tool": Secret("inner")}
    tool = ToolMessage("done", tool_call_id="1", artifact=artifact)
    graph = chat(BacktrailSaver(store, types=[Secret]), lambda state: tool)
    say(graph, "go")
    fresh = chat(BacktrailSaver(store, types=[Secret])).get_state(at()).values["messages"][-1]
    assert fresh.content == "done"
    assert fresh.artifact["when"] == uuid.UUID(int=7)


def test_a_text_that_was_cut_in_an_emoji_stays_as_it_is(store: Any) -> None:
    cut = "stream \ud83d"
    saver = BacktrailSaver(store)
    values = {"messages": [AIMessage(cut, name=cut, id="a")], "plain": {cut: [cut]}}
    checkpoint: Any = {**empty_checkpoint(), "channel_values": values, "channel_versions": dict.fromkeys(values, "1")}
    saved = saver.put(at(checkpoint_ns=""), checkpoint, {"title": cut}, checkpoint["channel_versions"])
    saver.put_writes(saved, [("plain", {"deep": cut}), ("messages", AIMessage(cut))], "task")
    found = BacktrailSaver(store).get_tuple(at())
    assert found is not None
    assert found.checkpoint["channel_values"] == values
    assert found.metadata["title"] == cut
    assert [value for _, _, value in found.pending_writes] == [{"deep": cut}, AIMessage(cut)]


def test_an_encrypting_serializer_sees_every_byte(store: Any) -> None:
    class Reverse:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "reverse", plaintext[::-1]

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return ciphertext[::-1]

    saver = BacktrailSaver(store, serde=EncryptedSerializer(Reverse()))  # type: ignore[arg-type]
    graph = chat(saver, lambda state: AIMessage("the secret answer"))
    for i in range(3):
        say(graph, f"the secret question {i}")
    for name in ("t", "t//writes"):
        for checkpoint in store.thread(name).history():
            assert "secret" not in str(store.thread(name).load(at=checkpoint))
    assert len(graph.get_state(at()).values["messages"]) == 6
    assert len(store.thread("t").load()["messages"]) == 6


@pytest.mark.parametrize("cls", sorted(MESSAGE_CLASSES, key=lambda cls: cls.__name__), ids=lambda cls: cls.__name__)
def test_each_message_class_comes_back_as_from_langgraphs_serializer(cls: Any) -> None:
    need: dict[str, Any] = {"content": "text", "tool_call_id": "1", "role": "r", "name": "n", "id": "i"}
    fields = {key: value for key, value in need.items() if key in cls.model_fields}
    if cls is RemoveMessage:
        fields = {"id": "i"}
    message = cls(**fields)
    codec, serde = MessageCodec(JsonPlusSerializer()), JsonPlusSerializer()
    stored = codec.encode([message])
    assert stored[0][RESERVED_KEY] == cls.__name__
    back = codec.decode(stored)[0]
    assert type(back) is cls
    assert back.model_dump() == serde.loads_typed(serde.dumps_typed(message)).model_dump() == message.model_dump()
    copy = clone_message(message)
    assert copy == message
    assert copy.additional_kwargs is not message.additional_kwargs


def test_values_of_all_types_come_back_as_from_langgraphs_own_saver(store: Any) -> None:
    values: dict[str, Any] = {
        "none": None,
        "numbers": [1, 1.0, True, -0.0],
        "nested": {"a": [{"b": [SystemMessage("s")]}], "c": {1: "one"}},
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "uuid": uuid.UUID(int=1),
        "mark": {RESERVED_KEY: "not ours"},
        RESERVED_KEY: "a channel with our own name",
        f"{RESERVED_KEY}:x": "and one like it",
    }
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": dict.fromkeys(values, "1")}
    ours, theirs = BacktrailSaver(store), InMemorySaver()
    for saver in (ours, theirs):
        saver.put(at(checkpoint_ns=""), checkpoint, {"source": "input"}, dict.fromkeys(values, "1"))
    one = BacktrailSaver(store).get_tuple(at()).checkpoint["channel_values"]
    assert repr(sorted(one.items())) == repr(sorted(values.items()))
    assert one == theirs.get_tuple(at()).checkpoint["channel_values"]
