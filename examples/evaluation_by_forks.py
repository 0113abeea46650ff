"""Several ways from one state, measured: each way is a fork, and the best one is taken.

    python examples/evaluation_by_forks.py

The conversation and the files up to the fork are shared, so ten ways cost little more than one. It prints:

    way           score  steps
    plain             1      2
    step by step      2      3
    with a check      3      4
    taken: with a check, from step 4 on
    the conversation has 8 messages, the other ways are gone
"""

from __future__ import annotations

from typing import Any

import backtrail

WAYS = {
    "plain": "Summarise the report.",
    "step by step": "Summarise the report. Think step by step.",
    "with a check": "Summarise the report. Think step by step, then check every figure.",
}
FACTS = ("sales rose", "costs fell", "two offices closed")


def model(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A model that answers from a script: a longer instruction makes it work more."""
    effort = messages[-1]["content"].count(",") + messages[-1]["content"].count("step") // 2
    thoughts = [{"role": "assistant", "content": f"thought {n + 1}"} for n in range(effort)]
    return [*thoughts, {"role": "assistant", "content": "; ".join(FACTS[: effort + 1])}]


def score(thread: backtrail.Thread[Any]) -> int:
    """How good the last message is. Yours may ask a model, run tests, or compare with an answer that is known."""
    return sum(fact in thread.tail("messages", 1)[0]["content"] for fact in FACTS)


def attempt(thread: backtrail.Thread[Any], prompt: str) -> None:
    thread.append("messages", [{"role": "user", "content": prompt}])
    for message in model(thread.load()["messages"]):
        thread.append("messages", [message])


def main() -> None:
    with backtrail.open("memory:") as store:
        thread = store.thread("report")
        for text in ("Here is the report …", "I have read it.", "Good.", "What shall I do?"):
            thread.append("messages", [{"role": "user", "content": text}])
        start = thread.get("@")

        scores = {}
        print(f"{'way':12}  {'score':>5}  {'steps':>5}")
        for way, prompt in WAYS.items():
            fork = thread.fork(f"report/{way}")
            attempt(fork, prompt)
            scores[way] = score(fork)
            fork.annotate("@", custom={"score": scores[way]})  # to be found again
            print(f"{way:12}  {scores[way]:>5}  {fork.step - start.step:>5}")

        best = max(scores, key=lambda way: scores[way])
        winner = store.thread(f"report/{best}")
        assert winner.common_ancestor(thread.get("@")) == start
        print(f"taken: {best}, from step {start.step} on")

        thread.append("messages", winner.load()["messages"][start.step :], label=f"taken from {best}")
        for way in WAYS:
            store.thread(f"report/{way}").delete()
        left = [info.id for info in store.threads()]
        assert left == ["report"]
        print(f"the conversation has {len(thread.load()['messages'])} messages, the other ways are gone")


if __name__ == "__main__":
    main()
