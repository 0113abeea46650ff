"""A tour of backtrail: an agent is killed in the middle, resumes, is forked, rewound and compared.

Run it with `make demo`. The agent is scripted, so no key and no network are needed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import backtrail

STEPS = 60
_SENTENCE = (
    "the agent reads file test fails because parser drops last token so it changes loop adds case runs suite again and "
    "writes what it learned into plan before next step which keeps context small enough for model"
)
WORDS = _SENTENCE.split()


def show(text: str) -> None:
    print(text, flush=True)


def chapter(number: int, title: str) -> None:
    show(f"\n\033[1m{number}. {title}\033[0m" if sys.stdout.isatty() else f"\n{number}. {title}")


def messages_of(step: int) -> list[dict[str, Any]]:
    """The messages of a model and a tool at one step."""
    rng = random.Random(step)  # noqa: S311  # the same text at each run
    prose = " ".join(rng.choice(WORDS) for _ in range(160))
    call = {
        "id": f"call_{step}",
        "type": "function",
        "function": {"name": "run_tests", "arguments": f'{{"step": {step}}}'},
    }
    return [
        {"role": "assistant", "content": f"Step {step}: {prose}", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{step}", "content": " ".join(rng.choice(WORDS) for _ in range(120))},
    ]


def agent(path: str) -> None:
    """Work until all steps are done, saving after each. All it knows of earlier runs is in the store."""
    thread = backtrail.open(path).thread("fix-the-parser")
    state: dict[str, Any] = (
        thread.load() if thread.exists() else {"messages": [{"role": "user", "content": "Make the tests pass."}]}
    )
    while len(state["messages"]) < 1 + 2 * STEPS:
        step = thread.step + 1
        state["messages"] += messages_of(step)
        state["plan"] = f"after step {step}: {STEPS - step} to go"
        saved = thread.save(state, label="half-way" if step == STEPS // 2 else None)
        print(saved.step, flush=True)  # printed only after it was saved
        time.sleep(0.005)


def run_agent(path: Path, kill_after: int | None) -> int:
    """Run the agent in a process of its own; gives the last step that it printed."""
    printed = 0
    with subprocess.Popen([sys.executable, __file__, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed = int(line)
            if printed == kill_after:
                os.kill(process.pid, signal.SIGKILL)
                break
    return printed


def tour(folder: Path) -> None:
    path = folder / "backtrail.db"

    chapter(1, "An agent works, and is killed with SIGKILL in the middle of it")
    printed = run_agent(path, kill_after=37)
    store = backtrail.open(path)
    thread = store.thread("fix-the-parser")
    show(f"   it had reported step {printed}; the store has step {thread.step}: nothing it reported is lost")
    assert thread.step >= printed
    survived = thread.step

    chapter(2, "It is started again, and goes on where it stopped")
    run_agent(path, kill_after=None)
    state = thread.load()
    messages = len(state["messages"])
    show(f"   it went on at step {survived + 1} and finished at step {thread.step}, with {messages} messages")
    assert thread.step == STEPS

    chapter(3, "What if it had gone another way? A fork at the label 'half-way' is one small record")
    half = thread.find(label="half-way")[0]
    fork = thread.fork("another-way", at=half)
    idea = fork.append("messages", [{"role": "user", "content": "Try a table-driven parser instead."}])
    show(f"   {fork.id!r} shares {half.size:,} bytes with its parent, and wrote {idea.written:,} of its own")

    chapter(4, "A mistake: rewind, and undo the rewind")
    show(f"   rewound to step {thread.rewind(50).step}: {thread.load()['plan']}")
    show(f"   undone, at step {thread.undo().step} again: {thread.load()['plan']}")

    chapter(5, "What changed between two steps?")
    for line in str(thread.diff(58, 60)).splitlines():
        show(f"   {line}")

    chapter(6, "What it cost")
    history = thread.history()
    whole = sum(checkpoint.size for checkpoint in history)
    written = sum(checkpoint.written for checkpoint in history)
    show(f"   {'step':>6} {'state':>12} {'backtrail wrote':>17}")
    for checkpoint in history[9::10]:
        show(f"   {checkpoint.step:>6} {checkpoint.size:>12,} {checkpoint.written:>17,}")
    show(f"   {len(history)} steps: a store that writes the whole state each time writes {whole:,} bytes;")
    show(f"   backtrail wrote {written:,}, {whole / written:.0f} times less, and loads any of them.")
    store.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        agent(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as name:
            tour(Path(name))
