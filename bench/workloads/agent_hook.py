"""The hook of coding agents: what a turn in a project of 10,000 files costs, and how much of it the agent waits for."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import Outcome, Target
from bench.run_context import RunContext

FILES = 10_000
CHANGED = 5  # files of a turn
LINES = 20  # of the transcript, in a turn
TURNS = 10  # for each round of the run
LIMIT = 350  # milliseconds, for a whole turn
SETTLE = 2.5  # seconds after which a file that was just written need not be read again


class Took(NamedTuple):
    """Milliseconds of one event."""

    waited: float  #: by the agent
    saved: float  #: until all is saved
    processor: float  #: of both processes


class Agent:
    """An agent as far as the hook sees it."""

    def __init__(self, directory: Path, files: int) -> None:
        self.project = directory / "project"
        self.transcript = directory / "transcript.jsonl"
        self.transcript.touch()
        self._log = directory / "data" / "backtrail" / "hook.log"
        # A backtrail that was installed has its bytecode: a shell that forbids to write it must not make the hook
        # compile all of its modules at each event.
        left_out = ("BACKTRAIL_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        folders = {f"XDG_{kind.upper()}_HOME": str(directory / kind) for kind in ("data", "state", "cache")}
        self._environment = {**kept, **folders}
        self._events = 0
        for number in range(files):
            path = self.file(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"value = {number}\n" * 50)

    def file(self, number: int) -> Path:
        return self.project / f"package{number // 100}" / f"module{number}.py"

    def work(self, turn: int) -> None:
        """What an agent does in a turn."""
        for number in range(CHANGED):
            self.file(turn * 100 % FILES // 4 + number).write_text(f"changed = {turn}\n")
        with self.transcript.open("a") as file:
            file.writelines(json.dumps({"type": "assistant", "text": "x" * 1000}) + "\n" for _ in range(LINES))

    def tell(self, name: str, turn: int) -> Took:
        """Run the hook."""
        payload = {"session_id": "bench", "cwd": str(self.project), "transcript_path": str(self.transcript)}
        payload |= {"hook_event_name": name, "prompt": f"turn {turn}", "prompt_id": f"turn-{turn}"}
        command = [sys.executable, "-m", "backtrail.cli", "hook", "claude"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        subprocess.run(command, input=json.dumps(payload).encode(), env=self._environment, check=True)
        waited = time.perf_counter() - start
        self._events += 1
        while not self._log.exists() or self._log.read_bytes().count(b"\n") < self._events:
            time.sleep(0.001)
        saved = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        first = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        second = json.loads(self._log.read_bytes().splitlines()[-1])["cpu_ms"]
        return Took(waited * 1e3, saved * 1e3, first * 1e3 + second)


def run(context: RunContext) -> Outcome:
    files = context.scaled(FILES)
    turns = TURNS * context.rounds
    took: dict[str, list[Took]] = {"prompt": [], "end of the turn": []}
    with context.progress("agent hook", turns) as bar, context.scratch() as scratch:
        agent = Agent(scratch.new_directory(), files)
        first = agent.tell("SessionStart", 0)
        time.sleep(SETTLE)
        agent.tell("Stop", 0)
        for turn in range(1, turns + 1):
            took["prompt"].append(agent.tell("UserPromptSubmit", turn))
            agent.work(turn)
            took["end of the turn"].append(agent.tell("Stop", turn))
            bar.advance()
    took["a whole turn"] = [Took(*map(sum, zip(*both, strict=True))) for both in zip(*took.values(), strict=True)]
    medians = {name: Took(*map(statistics.median, zip(*each, strict=True))) for name, each in took.items()}
    rows = [[name, *(f"{value:.0f}" for value in each)] for name, each in {"the first event": first, **medians}.items()]
    whole = medians["a whole turn"]
    targets = [
        Target("hook", f"a turn in {files:,} files, processor time", whole.processor, LIMIT, unit="ms"),
        Target("hook", f"a turn in {files:,} files, the agent waits", whole.waited, LIMIT, unit="ms"),
    ]
    raw: dict[str, Any] = {"took": took, "first": first}
    note = f"{files:,} files, {CHANGED} changed in a turn, {LINES} lines of transcript; from the start of the process"
    return Outcome(
        "Hook of coding agents",
        ["event", "the agent waits, ms", "all is saved, ms", "processor, ms"],
        rows,
        targets,
        raw,
        note,
    )
