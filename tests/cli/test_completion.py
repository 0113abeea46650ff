"""Completion in real shells: a stored name is never run, expanded or taken for an option."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import backtrail

# Each prints the completions of `backtrail log …`, one per line, as the shell's own completion script asks for them.
ASK = {
    "bash": {"_BACKTRAIL_COMPLETE": "bash_complete", "COMP_WORDS": "backtrail log ", "COMP_CWORD": "2"},
    "zsh": {"_BACKTRAIL_COMPLETE": "zsh_complete", "COMP_WORDS": "backtrail log ", "COMP_CWORD": "2"},
    "fish": {"_BACKTRAIL_COMPLETE": "fish_complete", "COMP_WORDS": "backtrail log ", "COMP_CWORD": ""},
}
HOSTILE = [
    "ev$(touch canary)",
    "ev`touch canary`",
    "ev;touch canary;",
    "ev&touch canary&",
    "ev|touch canary|",
    "ev\ntouch canary\n",
    "ev\nplain,$(touch canary)",
    "ev<(touch canary)",
    "ev>canary",
    "ev(touch canary)",
    "ev{touch,canary}",
    "ev'$(touch canary)'",
    'ev"$(touch canary)"',
    "ev\\$(touch canary)",
    "ev$((touch canary))",
    "ev*(e:touch\\ canary:)",
]
PLAIN = ["plain", "ünï-2", "a/b@d", "a.b+c=d,e"]
ODD = ["-rf", "--debug", "~root", "=ls", "a b", "a#b", "a!b", "!!", "a\\b", "a?", "[a]", "%1", "^a^b"]
# bash's own completion function, and then the line as Enter would run it.
BASH = """
eval "$(_BACKTRAIL_COMPLETE=bash_source backtrail)"
COMP_WORDS=(backtrail log e) COMP_CWORD=2
_backtrail_completion backtrail
eval "echo ${COMPREPLY[*]}"
"""


@pytest.fixture
def threads(tmp_path: Path) -> Path:
    """A directory with a store whose threads have the names above."""
    with backtrail.open(tmp_path / "backtrail.db") as store:
        for name in (*HOSTILE, *PLAIN, *ODD):
            with contextlib.suppress(backtrail.InvalidInput):  # names that no thread may have
                store.thread(name).save({})
    return tmp_path


@pytest.mark.parametrize("shell", ASK)
def test_only_names_that_are_one_plain_word_are_completed(threads: Path, shell: str) -> None:
    assert sorted(offered(shell, threads)) == sorted(PLAIN)


@pytest.mark.slow  # needs shells that not every machine has
@pytest.mark.parametrize("shell", ASK)
def test_no_shell_runs_what_completion_offers(threads: Path, shell: str) -> None:
    program = shutil.which(shell)
    assert program is not None, f"{shell} is not installed: `make shells` installs it"
    for name in offered(shell, threads):
        ended = subprocess.run([program, "-c", f"echo {name}"], cwd=threads, capture_output=True, text=True, check=True)
        assert ended.stdout == f"{name}\n"
    assert not (threads / "canary").exists()


def test_bash_runs_no_thread_name_that_it_completed(threads: Path) -> None:
    commands = threads / "bin"
    commands.mkdir()
    command = commands / "backtrail"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m backtrail.cli "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LANG": "C.UTF-8",
    }
    ended = subprocess.run(
        ["bash", "-c", BASH], cwd=threads, env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""
    assert not (threads / "canary").exists()


def offered(shell: str, directory: Path) -> list[str]:
    """The names that completion offers to a shell."""
    ended = subprocess.run(
        [sys.executable, "-c", "from backtrail.cli.main import main; main()"],
        cwd=directory,
        env=os.environ | ASK[shell],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = ended.stdout.splitlines()
    if shell == "zsh":  # three lines for each: kind, value, help
        return lines[1::3]
    return [line.partition(",")[2] for line in lines]
