"""Cost grows as it must: each dimension of the data is doubled several times, and the work must not grow much faster.

A case names one dimension (messages, keys, depth, backticks, …) and one call. It is run at four sizes, each twice the
one before, and the exponent of its growth is fitted: 1 is linear, 2 quadratic. What is measured is the processor time
of this thread, the least of a few runs, so that a busy machine does not matter; only the ratio counts. A case that
looks steep is measured again, several times, before it is believed.
"""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import backtrail
from backtrail import message_shapes
from backtrail.encode.tagged_json import from_json, to_json
from backtrail.export import Document, render
from backtrail.render.change_summary import summarize
from backtrail.render.jsonable import json_bytes, short_text, truncate
from backtrail.render.message_parser import parse_message
from backtrail.sequence_diff import spans, unified

STEEP = 1.6  # n log n at these sizes is about 1.15
SIZES = (1, 2, 4, 8)
ATTEMPTS = 4

#: name -> (the smallest size, a function that prepares the data of a size and returns the call to be measured)
Prepare = Callable[[int], Callable[[], object]]
CASES: dict[str, tuple[int, Prepare]] = {}


def case(smallest: int) -> Callable[[Prepare], Prepare]:
    """Register a case under the name of its function."""

    def register(prepare: Prepare) -> Prepare:
        CASES[prepare.__name__] = (smallest, prepare)
        return prepare

    return register


def exponent(smallest: int, prepare: Prepare) -> float:
    """The slope of log(time) over log(size)."""
    points = []
    for factor in SIZES:
        call = prepare(smallest * factor)
        points.append((math.log(smallest * factor), math.log(min(_seconds(call) for _ in range(3)))))
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def _seconds(call: Callable[[], object]) -> float:
    gc.disable()  # a full collection costs as much as there are objects, whoever made them
    try:
        start = time.thread_time()
        call()
        return max(time.thread_time() - start, 1e-6)
    finally:
        gc.enable()


@pytest.mark.parametrize("name", CASES)
def test_work_does_not_grow_much_faster_than_the_data(name: str) -> None:
    smallest, prepare = CASES[name]
    found: list[float] = []
    while len(found) < ATTEMPTS:
        found.append(exponent(smallest, prepare))
        if found[-1] < STEEP:
            return
    pytest.fail(f"{name} grows with the power {min(found):.2f} of its size")


def test_the_harness_tells_quadratic_work_from_linear_work() -> None:
    assert exponent(20_000, lambda n: lambda: sum(range(n))) < STEEP
    assert exponent(100, lambda n: lambda: [i for i in range(n) for j in range(n) if i == j]) > STEEP


# -- states ------------------------------------------------------------------------------------------------------------


def _thread(state: Any = None, **options: Any) -> backtrail.Thread[Any]:
    thread = backtrail.open("memory:", **options).thread("t")
    if state is not None:
        thread.save(state)
    return thread


def _wide(n: int, size: int = 200) -> dict[str, Any]:
    return {"docs": {f"doc-{i}": f"{i} " + "x" * size for i in range(n)}}


def _messages(n: int) -> list[dict[str, Any]]:
    return [{"role": "user" if i % 2 else "assistant", "content": f"message {i}"} for i in range(n)]


@case(1000)
def loading_a_wide_dict(n: int) -> Callable[[], object]:
    return _thread(_wide(n)).load


@case(1000)
def loading_a_wide_dict_of_dicts(n: int) -> Callable[[], object]:
    return _thread({"docs": {f"doc-{i}": {"id": i, "text": "y" * 100} for i in range(n)}}).load


@case(1000)
def saving_a_wide_dict(n: int) -> Callable[[], object]:
    state = _wide(n)
    return lambda: _thread(state)


@case(1000)
def saving_a_wide_dict_again_with_one_change(n: int) -> Callable[[], object]:
    state = _wide(n)
    thread = _thread(state)

    def save() -> None:
        state["docs"]["doc-5"] = str(time.perf_counter_ns()) * 20
        thread.save(state)

    return save


@case(2000)
def outlining_a_wide_dict(n: int) -> Callable[[], object]:
    thread = _thread(_wide(n, 20))
    return lambda: thread.outline(["docs"])


@case(2000)
def outlining_a_state_of_many_keys(n: int) -> Callable[[], object]:
    return _thread({f"key {i}": i for i in range(n)}).outline


@case(1000)
def loading_a_list(n: int) -> Callable[[], object]:
    return _thread({"messages": _messages(n)}).load


@case(200)
def loading_a_list_that_was_appended_item_by_item(n: int) -> Callable[[], object]:
    thread = _thread()
    for i in range(n):
        thread.append("messages", [{"role": "user", "content": f"message {i}"}])
    return thread.load


@case(100)
def appending_to_a_list(n: int) -> Callable[[], object]:
    def append() -> None:
        thread = _thread()
        for i in range(n):
            thread.append("messages", [i])

    return append


@case(30)
def saving_a_list_that_is_edited_all_over(n: int) -> Callable[[], object]:
    def edit() -> None:
        thread = _thread()
        items = [f"item {i} " * 10 for i in range(400)]
        for i in range(n):
            items[(i * 37) % 400] = f"edit {i} " * 10
            thread.save({"items": items})

    return edit


@case(15)
def saving_and_loading_a_deep_state(n: int) -> Callable[[], object]:
    state: Any = "bottom" * 10
    for _ in range(n):
        state = {"a long name for a level": state, "beside": "x" * 50}
    return lambda: _thread({"deep": state}).load()


@case(500)
def loading_a_set_and_a_dict_with_other_keys(n: int) -> Callable[[], object]:
    return _thread({"set": set(range(n)), "dict": {(i, "k"): i for i in range(n)}}).load


@case(200)
def history_and_find(n: int) -> Callable[[], object]:
    thread = _thread()
    for i in range(n):
        thread.append("messages", [i], label=f"label {i}", tags=[f"tag {i % 7}"])
    return lambda: (thread.history(), thread.find(tag="tag 3"), thread.find(label="label 7"))


@case(1000)
def summarizing_a_change_of_a_state_with_many_keys(n: int) -> Callable[[], object]:
    thread = _thread({f"key {i}": i for i in range(n)})
    last = thread.update({"key 3": -1})
    return lambda: summarize(thread, last)


def _forked(n: int, *, of_forks: bool) -> backtrail.Store:
    store = backtrail.open("memory:")
    thread: backtrail.Thread[Any] = store.thread("t")
    for i in range(n):
        thread.append("messages", [i])
    for i in range(n):
        fork = thread.fork(f"fork {i}", at=None if of_forks else i + 1)
        fork.append("messages", [i])
        thread = fork if of_forks else thread
    return store


@case(100)
def pruning_verifying_and_listing_many_forks(n: int) -> Callable[[], object]:
    store = _forked(n, of_forks=False)
    policy = backtrail.Retention(keep_last=2)
    return lambda: (store.prune(policy, dry_run=True), store.verify(), store.thread("t").forks())


@case(100)
def pruning_verifying_and_listing_forks_of_forks(n: int) -> Callable[[], object]:
    store = _forked(n, of_forks=True)
    policy = backtrail.Retention(keep_last=2)
    return lambda: (store.prune(policy, dry_run=True), store.verify(), store.thread("t").forks())


# -- differences -------------------------------------------------------------------------------------------------------


def _diff(a: Any, b: Any) -> Callable[[], object]:
    thread = _thread(a)
    thread.save(b)
    return lambda: thread.diff(1, 2)


@case(2_000)
def diff_of_a_list_that_is_the_deeper_the_longer_it_is(size: int) -> Callable[[], object]:
    def nested(last: int) -> Any:
        value: Any = [*range(size), last]
        for level in range(size // 160):
            value = [value] if level % 2 else {"k": value}
        return {"a": {"b": value}}

    return _diff(nested(1), nested(2))


@case(500)
def comparing_lists_with_nothing_in_common(n: int) -> Callable[[], object]:
    return _diff({"l": list(range(n))}, {"l": list(range(n, 2 * n))})


@case(500)
def comparing_lists_of_few_small_items(n: int) -> Callable[[], object]:
    return _diff({"l": [i % 10 for i in range(n)]}, {"l": [i * i % 7 for i in range(n)]})


@case(500)
def comparing_lists_in_reverse(n: int) -> Callable[[], object]:
    return _diff({"l": list(range(n))}, {"l": list(range(n))[::-1]})


@case(500)
def comparing_wide_dicts(n: int) -> Callable[[], object]:
    return _diff(_wide(n), {"docs": {f"doc-{i}": i for i in range(0, 2 * n, 3)}})


@case(1000)
def comparing_sequences_that_repeat(n: int) -> Callable[[], object]:
    a, b = [i % 3 for i in range(n)], [i * i % 5 for i in range(n)]
    return lambda: spans(a, b)


@case(250)
def comparing_files_whose_lines_repeat(n: int) -> Callable[[], object]:
    a = ["", "    return x", "}"] * n
    b = ["", "    return y", "}", "    return x"] * n
    return lambda: list(unified(a, b))


# -- messages ----------------------------------------------------------------------------------------------------------


def _call(i: int) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": f"c{i}", "name": "run", "input": {"i": i}}]}


def _result(i: int) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{i}", "content": "ok"}]}


@case(200)
def repairing_calls_without_results(n: int) -> Callable[[], object]:
    messages = [_call(i) for i in range(n)]
    return lambda: message_shapes.repair(messages, alternating=True)


@case(200)
def repairing_messages_that_answer_one_call_and_make_another(n: int) -> Callable[[], object]:
    messages = [
        {"role": "user", "content": _result(i - 1)["content"] + _call(2 * i + 10**6)["content"]} for i in range(n)
    ]
    return lambda: message_shapes.repair(messages)


@case(500)
def repairing_one_message_of_many_calls(n: int) -> Callable[[], object]:
    one = {"role": "assistant", "content": [block for i in range(n) for block in _call(i)["content"]]}
    return lambda: message_shapes.repair([one])


@case(500)
def repairing_one_message_of_many_orphans(n: int) -> Callable[[], object]:
    one = {"role": "user", "content": [block for i in range(n) for block in _result(i)["content"]]}
    return lambda: message_shapes.repair([one])


@case(200)
def reading_the_last_messages_of_a_session_in_one_long_turn(n: int) -> Callable[[], object]:
    session = backtrail.open("memory:").session("s")
    session.extend([message for i in range(n) for message in (_call(i), _result(i))])
    return lambda: (session.messages(last=3), session.messages(last=n), session.repair())


@case(200)
def truncating_and_compacting_a_session(n: int) -> Callable[[], object]:
    def run() -> None:
        session = backtrail.open("memory:").session("s")
        session.extend([message for i in range(n) for message in (_call(i), _result(i))])
        session.truncate(keep_last=n)
        session.messages()

    return run


@case(500)
def parsing_a_message_of_many_blocks(n: int) -> Callable[[], object]:
    kinds = [
        {"type": "text", "text": "word " * 20},
        {"type": "thinking", "thinking": "hmm " * 100},
        {"type": "tool_use", "id": "c", "name": "run", "input": {}},
        {"type": "tool_result", "tool_use_id": "c", "content": "ok"},
    ]
    message = {"role": "assistant", "content": kinds * n}
    return lambda: parse_message(message)


def _document(messages: list[dict[str, Any]]) -> Document:
    info = backtrail.open("memory:").session("s").add("user", "x")
    return Document("s", "session", info.created_at, info.created_at, messages, {})


@case(2000)
def exporting_backticks_as_markdown(n: int) -> Callable[[], object]:
    ticks = "".join("`" * (i % 50 + 1) + "\n" for i in range(n)) + "`" * n
    document = _document([{"role": "tool", "content": ticks}])
    return lambda: render(document, "markdown")


@case(150)
def exporting_messages(n: int) -> Callable[[], object]:
    document = _document(_messages(n) + [_call(1), _result(1)] * n)
    return lambda: (render(document, "markdown"), render(document, "jsonl"))


# -- JSON and text -----------------------------------------------------------------------------------------------------


@case(500)
def converting_values_to_json_and_back(n: int) -> Callable[[], object]:
    value = {"s": {(i, b"x") for i in range(n)}, "m": dict.fromkeys(range(n), 1), "l": [2**70 + i for i in range(n)]}
    return lambda: from_json(json.loads(json_bytes(to_json(value))))


@case(2000)
def shortening_a_value(n: int) -> Callable[[], object]:
    value = {"l": ["x" * 30] * n, "t": "word " * n, "d": {str(i): i for i in range(n)}}
    return lambda: (truncate(value, 100), short_text(value))


# -- files to import ---------------------------------------------------------------------------------------------------


def _import(content: str, name: str) -> Callable[[], object]:
    def run() -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_text(content)
            report = backtrail.open("memory:").import_(path)
            assert report.imported, report

    return run


@case(200)
def importing_a_transcript_of_claude_code(n: int) -> Callable[[], object]:
    entries = [
        {
            "type": "user" if i % 2 else "assistant",
            "uuid": f"u{i}",
            "parentUuid": f"u{i - 1}" if i else None,
            "sessionId": "s",
            "isSidechain": False,
            "message": {"role": "user" if i % 2 else "assistant", "content": f"message {i}"},
        }
        for i in range(n)
    ]
    return _import("\n".join(map(json.dumps, entries)), "s.jsonl")


@case(60)
def importing_a_transcript_that_is_a_bush(n: int) -> Callable[[], object]:
    entries = [
        {
            "type": "user",
            "uuid": f"u{i}",
            "parentUuid": f"u{i // 2}" if i else None,
            "sessionId": "s",
            "isSidechain": i % 3 == 0,
            "message": {"role": "user", "content": f"message {i}"},
        }
        for i in range(n)
    ]
    return _import("\n".join(map(json.dumps, entries)), "s.jsonl")


@case(500)
def importing_a_list_of_messages(n: int) -> Callable[[], object]:
    return _import(json.dumps({"id": "s", "messages": _messages(n)}), "s.json")


@case(200)
def importing_an_export_of_our_own(n: int) -> Callable[[], object]:
    return _import(render(_document(_messages(n)), "jsonl"), "s.jsonl")
