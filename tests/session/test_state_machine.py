"""State machine: random operations on a session, compared after each with a model made of a plain list."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import backtrail
from backtrail import message_shapes

_texts = st.one_of(st.text(max_size=5), st.sampled_from([100, 600, 3000]).map(lambda size: "x" * size))
_messages = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, _texts),
    st.builds(lambda text: {"role": "assistant", "content": text}, _texts),
    st.builds(lambda text, id: {"role": "user", "content": text, "id": id}, _texts, st.sampled_from("abc")),
)
_batches = st.lists(_messages, max_size=6)
_counts = st.integers(0, 12)


class Model:
    """The expected contents of a session."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.turns = 0
        self.first = 1
        self.summary = ""

    def copy(self) -> Model:
        other = Model()
        other.__dict__.update(self.__dict__, messages=list(self.messages))
        return other


class SessionMachine(RuleBasedStateMachine):
    """No tool calls here: how they extend a window or move a cut has its own tests."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        url = self.url.format(Path(self.folder.name))
        self.store = backtrail.open(url, **({} if url == "memory:" else {"durability": "normal"}))
        self.session = self.store.session("s")
        self.session.save()
        self.model = Model()
        self.snapshots: list[tuple[str, Model]] = []  # on the way to the head
        self.checkpoints: list[tuple[str, list[dict[str, Any]]]] = []

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(message=_messages)
    def append(self, message: dict[str, Any]) -> None:
        self.session.append(message)
        self.model.messages.append(message)
        self.model.turns += message_shapes.user_turns([message])

    @rule(batch=_batches)
    def extend(self, batch: list[dict[str, Any]]) -> None:
        self.session.extend(batch)
        self.model.messages += batch
        self.model.turns += message_shapes.user_turns(batch)

    @rule()
    def pop(self) -> None:
        popped = self.session.pop()
        if not self.model.messages:
            assert popped is None
            return
        assert popped == self.model.messages[-1]
        self.model.turns = max(0, self.model.turns - message_shapes.user_turns([self.model.messages.pop()]))

    @rule(keep=_counts)
    def truncate(self, keep: int) -> None:
        self.session.truncate(keep_last=keep)
        self._cut(max(0, len(self.model.messages) - keep))

    @rule(keep=_counts, meanwhile=_batches)
    def compact(self, keep: int, meanwhile: list[dict[str, Any]]) -> None:
        def summarize(messages: list[dict[str, Any]]) -> str:
            assert messages == self.model.messages[:cut]
            self.session.extend(meanwhile)
            return f"{len(messages)} messages"

        cut = max(0, len(self.model.messages) - keep)
        done = self.session.compact(summarize, keep_last=keep)
        assert (done is None) == (cut == 0)
        if cut:
            self.model.summary = f"{cut} messages"
            self._cut(cut)
            self.model.messages += meanwhile
            self.model.turns += message_shapes.user_turns(meanwhile)

    def _cut(self, count: int) -> None:
        del self.model.messages[:count]
        self.model.first += count

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        self.session.messages(last=1)
        kept = [m for m in self.model.messages if data.draw(st.booleans())] if len(self.model.messages) < 20 else []
        new = [*kept, *data.draw(_batches)]
        self.session.replace(new)
        self.model.first += len(self.model.messages)
        self.model.messages, self.model.turns = new, message_shapes.user_turns(new)

    @rule()
    def clear(self) -> None:
        self.session.clear()
        first = self.model.first + len(self.model.messages)
        self.model = Model()
        self.model.first = first

    @rule(text=_texts)
    def set_summary(self, text: str) -> None:
        self.session.set_summary(text)
        self.model.summary = text

    @rule(name=st.sampled_from("xyz"))
    def snapshot(self, name: str) -> None:
        self.session.snapshot(name)
        self.snapshots.append((name, self.model.copy()))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted({name for name, _ in self.snapshots})))
        self.session.rewind(name)
        # Snapshots after it are off the trail now: an older one of the same name counts again.
        while self.snapshots[-1][0] != name:
            self.snapshots.pop()
        self.model = self.snapshots[-1][1].copy()

    @rule()
    def go_on_in_a_fork(self) -> None:
        self.session = self.session.fork()
        self.checkpoints.clear()

    @rule()
    def open_again(self) -> None:
        self.session = self.store.session(self.session.id)

    @rule()
    def remember(self) -> None:
        head = self.session.thread.head
        if head.thread_id == self.session.id:  # after a rewind, a fork no longer reaches checkpoints that it inherited
            self.checkpoints.append((head.id, list(self.model.messages)))

    @invariant()
    def it_holds_what_the_model_holds(self) -> None:
        said = self.model.messages
        assert self.session.messages() == said
        assert self.session.messages(last=3) == said[-3:]
        assert (self.session.count(), self.session.user_turns) == (len(said), self.model.turns)
        assert self.session.summary == self.model.summary
        own = [message_shapes.own_id(m) or f"#{n}" for n, m in enumerate(said, self.model.first)]
        assert self.session.ids() == own
        info = next(i for i in self.store.sessions() if i.id == self.session.id)
        assert (info.messages, info.user_turns) == (len(said), self.model.turns)

    @invariant()
    def the_history_holds_what_it_held(self) -> None:
        for id, said in self.checkpoints[-3:]:
            assert self.session.messages(at=id) == said


@pytest.mark.parametrize("url", ["memory:", "{}/store.db", "jsonl:{}/store"])
def test_a_session_does_what_a_plain_list_would_do(url: str) -> None:
    machine = type("Machine", (SessionMachine,), {"url": url})
    # Shrinking a failure would take minutes on a disk; memory shrinks what all have in common.
    phases = list(Phase) if url == "memory:" else [Phase.generate]
    quick = settings(
        max_examples=30,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=phases,
    )
    run_state_machine_as_test(machine, settings=quick)
