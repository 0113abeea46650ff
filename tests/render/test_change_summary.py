"""One-line summaries of what a checkpoint changed."""

from __future__ import annotations

from typing import Any

import backtrail
from backtrail.render.change_summary import summarize


def test_the_changes_of_a_step_are_summarized_in_a_few_words() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        first = thread.append("messages", [{"role": "user", "content": "hello"}])
        second = thread.append(
            "messages", [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b" * 500}]
        )
        third = thread.update({"mode": "fast"})
        fourth = thread.update({"mode": "slow"})
        fifth = thread.save({"mode": "slow"})
        same = thread.save({"mode": "slow"})
        summaries = [summarize(thread, c) for c in (first, second, third, fourth, fifth, same)]
    assert [one.text for one in summaries] == ["+1 message", "+2 messages", "+mode", "mode=slow", "−messages", ""]
    assert (summaries[0].role, summaries[0].preview) == ("user", "hello")
    assert summaries[1].preview.endswith("…")
