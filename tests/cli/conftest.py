"""The command line with its exit code, its stdout and its stderr, in this process: it is faster."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import backtrail
from backtrail.cli import context
from backtrail.cli.main import backtrail as group


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The data of a `--json` answer."""
        answer = json.loads(self.out)
        assert answer["backtrail"] == 1
        return answer["data"]


Run = Callable[..., Ran]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a store: `talk` has a rewind, a label, tags and a fork; `other` has one step."""
    with backtrail.open(tmp_path / "backtrail.db") as store:
        talk: backtrail.Thread[Any] = store.thread("talk")
        talk.save({"messages": [], "mode": "plan"}, label="start")
        talk.append("messages", [{"role": "user", "content": "build a rate limiter"}])
        talk.append("messages", [{"role": "assistant", "content": "a fixed window"}], tags=["bad"])
        talk.rewind(2)
        talk.append("messages", [{"role": "assistant", "content": "a token bucket"}], tags=["good"], custom={"run": 7})
        talk.update({"mode": "build"}, label="built")
        talk.fork("talk-fork", at=talk.step)
        store.thread("other").save({"n": 1})
    return tmp_path


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `backtrail …` in that directory."""

    def call(*args: str, env: dict[str, str] | None = None) -> Ran:
        with monkeypatch.context() as patch:
            patch.chdir(place)
            for name in [name for name in os.environ if name.startswith("BACKTRAIL_")]:
                patch.delenv(name)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.StringIO())
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    context.run(group, list(args))
                except SystemExit as leave:
                    code = leave.code
                except Exception:  # noqa: BLE001  # whatever --debug lets through
                    traceback.print_exc()  # as the interpreter does, for --debug
                    code = 1
            assert isinstance(code, int)
            return Ran(code, out.getvalue(), err.getvalue())

    return call
