"""A state machine that drives a store and a plain model side by side, and compares everything after each step.

The model keeps a deep copy of every state that was ever saved, and knows nothing of pieces, branches or marks. Bind it
to an engine like this:

    class TestMyEngine(StoreMachine.TestCase): ...

by subclassing `StoreMachine` and giving `open_store` (and `reopen_store`, where the engine outlives a store object).
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import backtrail
from backtrail.encode.change_detection import same

_TEXT = st.text(max_size=8)
_LEAF = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | _TEXT
    | st.binary(max_size=8)
    | st.just("long " * 80)
)
_VALUE = st.recursive(
    _LEAF,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=8,
)
_ITEM = st.fixed_dictionaries({"role": st.sampled_from(["user", "tool"]), "n": st.integers(0, 9) | st.floats(0, 9)}) | (
    st.builds(lambda text: {"content": text * 40}, st.text(min_size=1, max_size=4)) | _VALUE
)
_STATE = st.fixed_dictionaries({}, optional={"messages": st.lists(_ITEM, max_size=12), "plan": _VALUE, "deep": _VALUE})
_THREADS = st.sampled_from(["a", "b", "../c", "d%_*"])


class Node:
    """A checkpoint of the model."""

    def __init__(self, id: str, thread: str, parent: Node | None, step: int, state: Any) -> None:
        self.id = id
        self.thread = thread
        self.parent = parent
        self.step = step
        self.state = copy.deepcopy(state)
        self.label: str | None = None
        self.deleted = False

    def living(self) -> Node | None:
        """This checkpoint, or the nearest one before it that was not deleted."""
        node: Node | None = self
        while node is not None and node.deleted:
            node = node.parent
        return node

    def before(self) -> Node | None:
        return self.parent.living() if self.parent is not None else None

    def trail(self) -> list[Node]:
        """The living checkpoints before this one, and this one, which counts as living because the thread is at it."""
        nodes = [self]
        while (before := nodes[-1].before()) is not None:
            nodes.append(before)
        return nodes[::-1]


class Model:
    """A thread of the model: its head, the rewinds that can be undone, the undos that can be redone (where each went
    to, what it left, and if it took back a rewind), and the checkpoints it wrote."""

    def __init__(self, head: Node) -> None:
        self.head = head
        self.moves: list[tuple[Node, Node]] = []
        self.undone: list[tuple[Node, Node, bool]] = []
        self.own: list[Node] = []


class StoreMachine(RuleBasedStateMachine):
    """Save, append, update, edit, fork, rewind, undo, redo, annotate, delete, reopen: in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.open_store()
        self.threads: dict[str, Model] = {}

    def open_store(self) -> backtrail.Store:
        """A new, empty store."""
        raise NotImplementedError

    def reopen_store(self, store: backtrail.Store) -> backtrail.Store:
        """The same store in a new object, if the engine can; else the one given."""
        return store

    # -- what can be done -------------------------------------------------------------------------------------------

    def _saved(self, name: str, checkpoint: backtrail.Checkpoint, state: Any) -> None:
        model = self.threads.get(name)
        parent = model.head if model is not None else None
        node = Node(checkpoint.id, name, parent, parent.step + 1 if parent is not None else 1, state)
        assert checkpoint.step == node.step
        assert checkpoint.parent_id == (parent.id if parent is not None else None)
        if model is None:
            model = self.threads[name] = Model(node)
        model.head = node
        model.own.append(node)
        model.undone.clear()

    def _state(self, name: str) -> dict[str, Any]:
        return copy.deepcopy(self.threads[name].head.state) if name in self.threads else {}

    @rule(name=_THREADS, state=_STATE)
    def save(self, name: str, state: dict[str, Any]) -> None:
        self._saved(name, self.store.thread(name).save(state), state)

    @rule(name=_THREADS, items=st.lists(_ITEM, max_size=5))
    def grow(self, name: str, items: list[Any]) -> None:
        state = self._state(name)
        state.setdefault("messages", []).extend(items)
        self._saved(name, self.store.thread(name).save(state), state)

    @rule(name=_THREADS, items=st.lists(_ITEM, max_size=5))
    def append(self, name: str, items: list[Any]) -> None:
        state = self._state(name)
        checkpoint = self.store.thread(name).append("messages", items)
        state.setdefault("messages", []).extend(items)
        self._saved(name, checkpoint, state)

    @rule(name=_THREADS, value=_VALUE, key=st.sampled_from(["plan", "deep", "messages", "new"]))
    def update(self, name: str, value: Any, key: str) -> None:
        state = self._state(name)
        changes = {key: [value, value] if key == "messages" else value}
        state.update(changes)
        self._saved(name, self.store.thread(name).update(changes), state)

    @precondition(lambda self: self.threads)
    @rule(data=st.data(), value=_ITEM)
    def edit(self, data: st.DataObject, value: Any) -> None:
        """Load, change anywhere in the list, save."""
        name = data.draw(st.sampled_from(sorted(self.threads)))
        thread: backtrail.Thread[Any] = self.store.thread(name)
        state = thread.load()
        items = state.get("messages", [])
        first = data.draw(st.integers(0, len(items)))
        last = data.draw(st.integers(first, len(items)))
        items[first:last] = data.draw(st.sampled_from([[], [value], [value, value], items[:2]]))
        state["messages"] = items
        self._saved(name, thread.save(state), state)

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.threads)))
        at = data.draw(st.sampled_from(self.threads[name].head.trail()))
        forked: backtrail.Thread[Any] = self.store.thread(name).fork(at=at.id)
        assert forked.id not in self.threads
        self.threads[forked.id] = Model(at)

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.threads)))
        model = self.threads[name]
        at = data.draw(
            st.sampled_from(
                [n for n in dict.fromkeys([*model.own, *model.head.trail()]) if not n.deleted or n is model.head]
            )
        )
        assert self.store.thread(name).rewind(at.id).id == at.id
        if at is not model.head:
            model.moves.append((at, model.head))
            model.head = at
            model.undone.clear()

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.threads)))
        model = self.threads[name]
        rewound = bool(model.moves) and model.moves[-1][0] is model.head
        target = model.moves[-1][1].living() if rewound else model.head.before()
        if target is None:
            try:
                self.store.thread(name).undo()
            except backtrail.NoCheckpoint:
                return
            raise AssertionError("there was nothing to go back to")
        assert self.store.thread(name).undo().id == target.id
        if rewound:
            model.moves.pop()
        model.undone.append((target, model.head, rewound))
        model.head = target

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def redo(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.threads)))
        model = self.threads[name]
        rest = list(model.undone)
        target, moved = None, False
        while rest and target is None:  # a save that was deleted since is passed over; a rewind cannot be
            _, back, again = rest.pop()
            if not back.deleted:
                target, moved = back, again
            elif again or (rest and rest[-1][2]):
                break
        if target is None:
            try:
                self.store.thread(name).redo()
            except backtrail.NoCheckpoint:
                return
            raise AssertionError("there was nothing to redo")
        assert self.store.thread(name).redo().id == target.id
        if moved:
            model.moves.append((target, model.head))
        model.head, model.undone = target, rest

    @precondition(lambda self: self.threads)
    @rule(data=st.data(), label=st.none() | st.sampled_from(["best", "broken"]))
    def annotate(self, data: st.DataObject, label: str | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.threads)))
        at = data.draw(st.sampled_from(self.threads[name].head.trail()))
        assert self.store.thread(name).annotate(at.id, label=label).label == label
        at.label = label

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def delete_one(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.threads)))
        model = self.threads[name]
        own = [node for node in model.own if not node.deleted]
        if not own:
            return
        node = data.draw(st.sampled_from(own))
        target = node.before() or next((other for other in reversed(own) if other is not node), None)
        if node is model.head and target is None:
            self.store.thread(name).delete(node.id)
            self._gone(name)
            return
        self.store.thread(name).delete(node.id)
        node.deleted = True
        if node is model.head:
            model.moves = [move for move in model.moves if move[0] is not node]
            assert target is not None
            model.head = target
            model.undone.clear()

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def delete_thread(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.threads)))
        self.store.thread(name).delete()
        self._gone(name)

    def _gone(self, name: str) -> None:
        del self.threads[name]

    @rule()
    def reopen(self) -> None:
        self.store = self.reopen_store(self.store)

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        assert [info.id for info in self.store.threads()] == sorted(self.threads)
        for name, model in self.threads.items():
            thread: backtrail.Thread[Any] = self.store.thread(name)
            trail = model.head.trail()
            assert same_state(thread.load(), model.head.state), (thread.load(), model.head.state)
            history = thread.history()
            assert [c.id for c in history] == [node.id for node in trail]
            assert [c.parent_id for c in history] == [None, *(node.id for node in trail[:-1])]
            assert [c.step for c in history] == [node.step for node in trail]
            assert [c.thread_id for c in history] == [node.thread for node in trail]
            assert [c.label for c in history] == [node.label for node in trail]
            assert thread.step == model.head.step
            for node in trail[:: max(1, len(trail) // 3)]:
                assert same_state(thread.load(node.id), node.state)
            reachable = {c.id for c in thread.history(all=True)}
            assert reachable == {n.id for n in [*model.own, *trail] if not n.deleted or n is model.head}

    def teardown(self) -> None:
        self.store.close()


def same_state(one: Any, other: Any) -> bool:
    """Exact equality, except that the order of a dict's keys does not count."""
    if type(one) is dict and type(other) is dict:
        return one.keys() == other.keys() and all(same_state(one[key], other[key]) for key in one)
    if type(one) in (list, tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(same_state, one, other))
    return same(one, other)
