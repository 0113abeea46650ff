"""Builds the demo store for the pictures in the docs: a coding agent at work, with a rewind and a fork.

python scripts/demo_store.py demo.db
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import backtrail

LIMITER = '''from time import monotonic


class Bucket:
    """A token bucket: `rate` per second, at most `burst` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self.tokens, self.at = float(burst), monotonic()
'''


def message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def tool_call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": id, "type": "function", "function": function}]}


def tool_result(id: str, name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content}


def rate_limiter(store: backtrail.Store) -> None:
    """A thread with a mistake, a rewind, and a fork."""
    thread: backtrail.Thread[dict[str, Any]] = store.thread("api/rate-limiter")
    thread.save(
        {
            "messages": [
                message("system", "You are a careful engineer. Run the tests before you say that you are done.")
            ],
            "plan": ["read the gateway", "write a limiter", "wire it in", "test under load"],
            "model": "claude-opus",
            "usage": {"input": 0, "output": 0},
        },
        label="start",
    )
    thread.append(
        "messages", [message("user", "Our public API has no rate limit. Add one: 20 requests a second per key.")]
    )
    thread.append(
        "messages",
        [
            tool_call("c1", "read_file", path="gateway/app.py"),
            tool_result("c1", "read_file", "from fastapi import FastAPI\n\napp = FastAPI()\n\n\n@app.get('/items')\n…"),
        ],
    )
    thread.update({"usage": {"input": 2_140, "output": 318}})
    thread.append(
        "messages",
        [
            message(
                "assistant",
                "The gateway is one FastAPI app. I will count requests per key in a dict, reset each second.",
            )
        ],
        tags=["design"],
    )
    before_mistake = thread.head
    assert before_mistake is not None
    thread.append(
        "messages",
        [
            tool_call("c2", "write_file", path="gateway/limit.py", text="counts = {}\n…"),
            tool_result("c2", "write_file", "wrote 38 lines"),
        ],
    )
    thread.append(
        "messages",
        [
            tool_call("c3", "run", command="pytest -q tests/test_limit.py"),
            tool_result(
                "c3", "run", "F.F\nFAILED test_burst_at_the_edge: 40 requests passed within 100 ms\n2 failed, 1 passed"
            ),
        ],
        tags=["failed"],
    )
    thread.annotate(thread.step, label="fixed-window")
    thread.rewind(before_mistake)
    thread.append(
        "messages", [message("user", "A fixed window lets double the rate through at its edge. Use a token bucket.")]
    )
    thread.append(
        "messages",
        [
            tool_call("c4", "write_file", path="gateway/limit.py", text=LIMITER),
            tool_result("c4", "write_file", "wrote 31 lines"),
        ],
    )
    thread.update({"plan": ["read the gateway", "token bucket", "wire it in", "test under load"]})
    thread.append(
        "messages",
        [
            tool_call("c5", "run", command="pytest -q"),
            tool_result("c5", "run", "........................................  [100%]\n40 passed in 1.92s"),
        ],
        label="tests-pass",
        tags=["green"],
    )
    fork = thread.fork("api/rate-limiter-redis")
    fork.append("messages", [message("user", "Now the same, shared between all gateways through Redis.")])
    fork.append("messages", [message("assistant", "One Lua script per request keeps the bucket in Redis, atomically.")])
    thread.append(
        "messages",
        [
            message(
                "assistant",
                "Done. Each key has a token bucket: 20 requests a second, bursts of up to 40.\n\n"
                "- `gateway/limit.py` holds the bucket, 31 lines\n- refused requests get a 429 with Retry-After\n"
                "- 40 tests pass, three of them new",
            )
        ],
    )
    thread.update({"usage": {"input": 9_871, "output": 2_204}})
    thread.append("messages", [message("user", "Great. Ship it behind a flag.")], tags=["user"])


def other_threads(store: backtrail.Store) -> None:
    """Other threads, so that the list has several."""
    for name, first in (
        ("support/4711", "My invoice for October shows the wrong address."),
        ("support/4712", "How do I export my data?"),
        ("research/solid-state-batteries", "Compare the three newest papers on sulfide electrolytes."),
        ("nightly/report", "Write the nightly report."),
    ):
        thread: backtrail.Thread[dict[str, Any]] = store.thread(name)
        thread.append("messages", [message("user", first)])
        for turn in range(3):
            thread.append(
                "messages", [message("assistant", f"Step {turn + 1}: I looked into it and noted what I found.")]
            )


@contextlib.contextmanager
def slow_clock(seconds: float = 38.0, ago: float = 1850.0) -> Iterator[None]:
    """Let the clock start half an hour ago and jump at each reading, so that the steps have different ages."""
    real = time.time_ns
    now = real() - int(ago * 1e9)

    def clock() -> int:
        nonlocal now
        now = min(now + int(seconds * 1e9), real())
        return now

    with mock.patch.object(time, "time_ns", clock):
        yield


def build(target: str) -> None:
    """Fill the store at `target`."""
    with backtrail.open(target) as store, slow_clock():
        other_threads(store)
        rate_limiter(store)


if __name__ == "__main__":
    build(sys.argv[1])
