"""Runs `backtrail …` and returns its exit code, stdout and stderr; in this process, because that is faster."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
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
    """The outcome of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The data that `--json` printed."""
        envelope = json.loads(self.out)
        assert envelope["backtrail"] == 1
        return envelope["data"]


Run = Callable[..., Ran]


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
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
def run(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `backtrail …` in `store_dir`."""

    def call(*args: str, env: dict[str, str] | None = None) -> Ran:
        with monkeypatch.context() as patch:
            patch.chdir(store_dir)
            for name in [name for name in os.environ if name.startswith("BACKTRAIL_")]:
                patch.delenv(name)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.StringIO())
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    context.run(group, list(args))
                except SystemExit as ended:
                    code = ended.code
                except Exception:  # noqa: BLE001  # any error that --debug lets through
                    traceback.print_exc()  # as the interpreter would
                    code = 1
            assert isinstance(code, int)
            return Ran(code, out.getvalue(), err.getvalue())

    return call


def run_in_shell(store_dir: Path, arguments: str) -> Ran:
    """Run `backtrail …` in a shell, where `arguments` may have pipes and redirections."""
    command = f"{sys.executable} -m backtrail.cli {arguments}"
    ended = subprocess.run(command, shell=True, cwd=store_dir, capture_output=True, text=True, check=False)
    return Ran(ended.returncode, ended.stdout, ended.stderr)
