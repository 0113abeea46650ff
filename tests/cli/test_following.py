"""`backtrail tail -f` and `backtrail log --follow` in processes of their own, stopped with Ctrl-C."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import backtrail

_SECONDS = 30


class _Followed:
    """A command that runs, and its lines as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def wait_for(self, text: str) -> str:
        while True:
            line = self._lines.get(timeout=_SECONDS)
            if text in line:
                return line


@contextmanager
def _running(store: Path, *arguments: str) -> Iterator[_Followed]:
    command = [sys.executable, "-m", "backtrail.cli", "--store", str(store), *arguments]
    # A shell that starts the tests in its background has them ignore Ctrl-C, and the command would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONUNBUFFERED": "1"}) as process:
        try:
            yield _Followed(process)
            process.send_signal(signal.SIGINT)
            assert process.wait(_SECONDS) == 0
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with backtrail.open(tmp_path / "store.db") as store:
        store.thread("t").append("messages", [{"role": "user", "content": "the first"}])
    return tmp_path / "store.db"


def _append(path: Path, content: str) -> None:
    with backtrail.open(path) as store:
        store.thread("t").append("messages", [{"role": "assistant", "content": content}])


def test_tail_prints_the_last_messages_and_those_that_come(path: Path) -> None:
    with _running(path, "tail", "-f", "t") as followed:
        followed.wait_for("the first")
        _append(path, "the second")
        followed.wait_for("the second")
        with backtrail.open(path) as store:
            store.thread("t").rewind(1)
        _append(path, "the third")
        followed.wait_for("the third")


def test_tail_prints_messages_as_lines_of_json(path: Path) -> None:
    with _running(path, "--json", "tail", "-f", "t", "-n", "0") as followed:
        # Nothing says that it has begun, so messages are saved until one arrives.
        for number in range(100):
            _append(path, f"number {number}")
            try:
                line = followed._lines.get(timeout=0.5)
                break
            except queue.Empty:
                continue
        message: dict[str, Any] = json.loads(line)
        assert message["role"] == "assistant"


def test_log_goes_on_with_new_checkpoints(path: Path) -> None:
    with _running(path, "log", "t", "--follow") as followed:
        followed.wait_for("the first")
        _append(path, "the second")
        assert "+1 message" in followed.wait_for("the second")
        with backtrail.open(path) as store:
            store.thread("t").rewind(1)
        followed.wait_for("head moved")


def test_tail_without_follow_ends(path: Path) -> None:
    command = [sys.executable, "-m", "backtrail.cli", "--store", str(path), "tail", "t"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "the first" in done.stdout
