"""Arguments that are wrong are refused, and the error names them."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail

LONG = "a sentence that is long enough to be kept apart from the root; " * 8


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("key", [5, None], ids=repr)
def test_a_key_that_cannot_be_one_is_named(store: Any, key: Any, wide: bool) -> None:
    thread = store.thread("t")
    state = {str(n): LONG for n in range(60)} if wide else {"a": 1}
    thread.save(state)
    for attempt in (
        lambda: thread.save({**state, key: 1}),
        lambda: thread.save({key: 1}),
        lambda: thread.update({key: 1}),
    ):
        with pytest.raises(backtrail.EncodeError, match=r"^state"):
            attempt()
    assert thread.step == 1
    assert thread.load() == state


@pytest.mark.parametrize("append", ["ab", ("a",), ("a", "text"), (5, [1]), 7, ("", [1])], ids=repr)
def test_an_append_beside_an_update_is_checked(store: Any, append: Any) -> None:
    thread = store.thread("t")
    thread.save({"a": [1]})
    with pytest.raises(backtrail.InvalidInput, match=r"append|key"):
        thread.update({"b": 2}, append=append)
    assert thread.load() == {"a": [1]}


def test_messages_name_the_argument_that_was_wrong(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"a": [1]}, label="x", tags=None)
    for call, name in (
        (lambda: thread.pick("a"), "keys"),
        (lambda: thread.update({}, remove="a"), "remove"),
        (lambda: thread.save({}, expect=1.5), "expect"),
        (lambda: thread.save({}, parent=True), "parent"),
        (lambda: thread.save({}, id="01"), "id"),
        (lambda: thread.diff(1, thread), "b"),
        (lambda: thread.load(1.5), "at"),
        (lambda: store.threads(after=5), "after"),
        (lambda: store.threads(prefix="\ud800"), "prefix"),
        (lambda: store.threads(after="\ud800"), "after"),
        (lambda: store.threads(kind=5), "kind"),
        (lambda: thread.lock(timeout=None), "timeout"),
        (lambda: thread.lock(timeout=float("nan")), "timeout"),
        (lambda: thread.lock(ttl=float("inf")), "ttl"),
        (lambda: thread.lock(ttl="long"), "ttl"),
    ):
        with pytest.raises(backtrail.InvalidInput, match=rf"^{name}\b"):
            call()
