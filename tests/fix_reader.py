"""A reader of docs/tutorial and docs/how-to: who writes the files that a page shows, types its commands, and compares.

| in a page | the reader |
| --- | --- |
| a block with `title="agent.py"` | writes that file into their directory |
| `console` | types each line that begins with `$ ` into a shell; what is below it must come out |
| `python` without a title | runs it, in one namespace for the page |
| `sh` | only looks: it needs a network, a browser or another machine |

In an output `…` stands for anything; ids, ages, seconds and the width of columns are others each time. A shell and its
variables last for a page. A command that fails must be shown with what it says.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from backtrail.testing.servers import postgres_binary

_BLOCK = re.compile(
    r"^```(\w+)(?: title=\"([^\"]+)\")?(?: hl_lines=\"[\d -]+\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_FENCE = re.compile(r"^```", re.MULTILINE)
_KILLED = re.compile(r"^\S*bash: line \d+: +\d+ (Killed).*$", re.MULTILINE)  # a shell at a terminal says only the word
_VARIES = {
    r"\b[0-9a-f]{8}-[0-9a-f]+(-[0-9a-f]+)*\b": "ID",
    r"\b(just now|\d+[smhd] ago)\b": "AGE",
    r"\b\d+\.\d{3}\b": "SECONDS",
}
_SHOWN_ONLY = {"sh", "text", "sql", "yaml", "ini", "mermaid"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    """The blocks of a page, from its top."""
    found = list(_BLOCK.finditer(text))
    assert len(_FENCE.findall(text)) == 2 * len(found), "a fence is not closed, or has words that nobody reads"
    return [Block(one[1], one[2], one[3], text.count("\n", 0, one.start()) + 1) for one in found]


class Reader:
    """Reads pages in the directory `project` of a folder, with the home directory `home`.

    Programs in `programs` are found before all others: stand-ins for those that a test cannot run."""

    def __init__(self, folder: Path) -> None:
        self.directory, self.home, self.programs = folder / "project", folder / "home", folder / "programs"
        for directory in (self.directory, self.home, self.programs):
            directory.mkdir(parents=True)

    def install(self, name: str, script: Path) -> None:
        """Put a Python script in the place of a program."""
        program = self.programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
        program.chmod(0o755)

    def read(self, page: Path, replacing: Mapping[str, str] | None = None) -> None:
        """Do what a page says. `replacing` has the addresses of real servers for those in the page."""
        text = page.read_text()
        for address, real in (replacing or {}).items():
            assert address in text, f"{page.name} does not name {address}"
            text = text.replace(address, real)
        namespace: dict[str, Any] = {"__name__": page.stem}
        with Shell(self.directory, self.home, self.programs) as shell:
            for block in blocks(text):
                where = f"{page.name}:{block.line}"
                if block.title is not None:
                    file = self.directory / block.title
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(block.text)
                elif block.language == "console":
                    self._type(shell, block.text, where)
                elif block.language == "python":
                    with chdir(self.directory):
                        exec(compile(block.text, where, "exec"), namespace)
                else:
                    assert block.language in _SHOWN_ONLY, f"{where}: nobody runs {block.language}"

    def _type(self, shell: Shell, text: str, where: str) -> None:
        for command, shown in commands(text):
            said, code = shell.type(command)
            told = f"{where}: $ {command}\n{said}(exit code {code})"
            assert matches(shown, said), told
            assert code == 0 or shown.strip(), told


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown below it."""
    assert text.startswith("$ "), text
    found = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        count = 1
        while lines[count - 1].endswith("\\\n"):
            count += 1
        found.append(("".join(lines[:count]).rstrip("\n"), "".join(lines[count:])))
    return found


def matches(shown: str, said: str) -> bool:
    """True if a program said what is shown: but for ids, times and columns, and an ellipsis stands for anything."""
    pattern = ".*?".join(map(re.escape, _in_general(shown).split("…")))
    return re.fullmatch(pattern, _in_general(said), re.DOTALL) is not None


def _in_general(text: str) -> str:
    """The part of an output that is the same each time."""
    for varies, name in _VARIES.items():
        text = re.sub(varies, name, text)
    return "\n".join(re.sub(" +", " ", line).rstrip() for line in text.splitlines()).strip("\n")


class Shell:
    """A bash that stays open for several commands, so that variables and background jobs do too."""

    def __init__(self, directory: Path, home: Path, first: Path) -> None:
        tools = (postgres_binary(name) for name in ("psql", "pg_dump", "pg_verifybackup"))
        programs = dict.fromkeys([first, Path(sys.executable).parent, *(Path(tool).parent for tool in tools)])
        changed = {
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
            "HOME": str(home),
            "PYTHONUNBUFFERED": "1",
        }
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env={**{name: value for name, value in os.environ.items() if not name.startswith("XDG_")}, **changed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    def type(self, command: str) -> tuple[str, int]:
        """Run a command; gives what it said, and its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        end = f"end-{uuid.uuid4()}"
        self._process.stdin.write(f"eval {shlex.quote(command)} < /dev/null\nprintf '\\n{end} %d\\n' $?\n")
        self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stdout:
            if line.startswith(end):
                return _KILLED.sub(r"\1", "".join(said)), int(line.split()[1])
            said.append(line)
        raise AssertionError(f"the shell ended: {''.join(said)}")

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("kill $(jobs -p) 2> /dev/null; wait\n")
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
