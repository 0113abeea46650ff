"""Any Python str is kept exactly, wherever it stands: halves of surrogate pairs, NUL, control characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from fix_stores import APIS, EVERY_ENGINE, Opener, open_stores

HALF = "cut in an emoji \ud83d"
ODD = [HALF, "\udc00", "\ud83d\ude00 as two halves", "\0", "\x1b[31m\x7f\x85\u2028\u202e", "\U0010ffff", "\ufffe", ""]
LONG = "enough text to be kept apart from the root, and more than one row; " * 8


def states(text: str) -> dict[str, Any]:
    return {
        "small": {"a": text},
        "key at the top": {text: 1, "b": 2},
        "key of a small dict": {"a": {text: {"deep": text}}},
        "key of a large dict": {"a": {text: LONG * 4, "b": {text: LONG * 4, "n": 1}}},
        "keys on pages": {"docs": {f"{n} {text}": LONG for n in range(80)}, text: LONG},
        "slot": {"a": LONG + text},
        "blob": {"a": LONG * 9 + text, "b": LONG * 9},
        "messages": {"messages": [{"role": "user", "content": f"{text}{n}", "n": n, text: [text]} for n in range(30)]},
        "other types": {"a": (text, {text}, frozenset([text]), {1: text, (text,): 2})},
        "record": {"a": backtrail.Unregistered("Note", {"text": text, text: 1})},
    }


@pytest.mark.parametrize("name", states(""))
@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_a_state_with_any_text_comes_back_exactly(store: Any, text: str, name: str) -> None:
    state = states(text)[name]
    thread = store.thread("t")
    thread.save(state, custom={"why": text, text: [text]})
    assert thread.load() == state
    assert list(thread.load()) == list(state)
    changed = {**state, "more": [LONG, text]}
    thread.save(changed)
    thread.append("more", [text, {"n": 1, text: text}])
    assert thread.load() == {**changed, "more": [LONG, text, text, {"n": 1, text: text}]}
    assert thread.load(1) == state
    first = thread.history()[0]
    assert first.custom == {"why": text, text: [text]}
    assert [one.id for one in thread.find(custom={"why": text})] == [first.id]
    assert thread.diff(1, 2).changes
    thread.outline()
    assert store.verify().ok


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    engine, _, api = request.param.partition("-")
    yield from open_stores(engine, api, tmp_path, request)


def test_any_text_is_kept_on_every_engine(anywhere: Opener) -> None:
    store = anywhere()
    for number, text in enumerate(ODD):
        for name, state in states(text).items():
            store.thread(f"{number} {name}").save(state, custom={"why": text, text: 1})
    again = anywhere()
    for number, text in enumerate(ODD):
        for name, state in states(text).items():
            thread = again.thread(f"{number} {name}")
            assert thread.load() == state
            assert thread.head.custom == {"why": text, text: 1}


def test_clean_text_is_encoded_as_before(store: Any) -> None:
    """A string that UTF-8 has costs nothing: only a value that msgspec refuses is encoded again."""
    from backtrail.encode.record_types import Types
    from backtrail.encode.values import Values

    values = Values(Types())
    assert values.encode({"é": ["ü", "😀"]}) == b"\x81\xa2\xc3\xa9\x92\xa2\xc3\xbc\xa4\xf0\x9f\x98\x80"
    assert values.encode(["a", HALF])[:3] == b"\x92\xa1a"


def test_a_session_keeps_what_a_cut_stream_left(store: Any) -> None:
    session = store.session("s")
    session.append({"role": "assistant", "content": HALF})
    session.append({"role": "user", "content": "\ude00 goes on"})
    assert [message["content"] for message in session.messages()] == [HALF, "\ude00 goes on"]
    assert session.messages(last=1)[0]["content"] == "\ude00 goes on"


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.thread(HALF).save({}),
        lambda store: store.thread("t").save({}, tags=[HALF]),
        lambda store: store.thread("t").save({}, label=HALF),
        lambda store: store.thread("t").append(HALF, [1]),
    ],
)
def test_names_stay_strict(store: Any, call: Callable[[Any], Any]) -> None:
    with pytest.raises(backtrail.InvalidInput, match="surrogate"):
        call(store)
