"""An agent loop that may be killed at any moment: a call that has returned is not made again.

    python examples/agent_loop.py

`work` is the loop. It is killed twice here, as by a deployment or a full memory, and started again. It prints:

    killed after the model was asked
    killed after the table was booked
    finished: A table for two is booked, at 8.
    the model was asked 3 times, 1 table was booked
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import backtrail

SCRIPT = [
    {"role": "assistant", "tool": "look", "arguments": {"day": "Friday"}},
    {"role": "assistant", "tool": "book", "arguments": {"time": 8, "people": 2}},
    {"role": "assistant", "content": "A table for two is booked, at 8."},
]


def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """A model that answers from a script; yours is asked over the network."""
    note("model")
    return SCRIPT[sum(message["role"] == "assistant" for message in messages)]


def look(day: str) -> str:
    return f"on {day} there are tables at 6 and at 8"


def book(time: int, people: int) -> str:
    note("book")
    return f"booked: {people} people at {time}"


TOOLS = {"look": look, "book": book}


def work(killed_after: str | None) -> None:
    with backtrail.open("backtrail.db") as store, store.run("dinner", task="book a table") as run:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "A table for two on Friday, please."}]
        while True:
            reply = run.step("model", model, messages)  # on disk before it is returned
            messages.append(reply)
            die_if(killed_after == "the model was asked")
            if "tool" not in reply:
                break
            # A step of this kind is never done twice: if the process dies in it, the next one is told that it may have
            # happened, and asks a person.
            result = run.step(reply["tool"], TOOLS[reply["tool"]], at_most_once=True, **reply["arguments"])
            messages.append({"role": "tool", "content": result})
            die_if(killed_after == "the table was booked" and reply["tool"] == "book")
        run.result = reply["content"]


# -- what kills it, and counts ---------------------------------------------------------------------------------------


def note(what: str) -> None:
    with Path("calls.txt").open("a") as calls:
        calls.write(what + "\n")


def die_if(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for moment in ("the model was asked", "the table was booked"):
            done = subprocess.run([sys.executable, __file__, moment], cwd=folder, check=False)
            assert done.returncode == -signal.SIGKILL
            print("killed after", moment)
        subprocess.run([sys.executable, __file__, ""], cwd=folder, check=True)
        with backtrail.open(Path(folder, "backtrail.db")) as store:
            print("finished:", store.run("dinner").outcome().result)
        calls = Path(folder, "calls.txt").read_text().split()
        print(f"the model was asked {calls.count('model')} times, {calls.count('book')} table was booked")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1] or None)
    else:
        main()
