"""No command prints a password, a key or a token, in text, as JSON or in a traceback."""

from __future__ import annotations

import pytest

from backtrail.cli.main import COMMANDS

from .conftest import Run

SECRET = "hunter2Zq"
URLS = [
    f"redis://user:{SECRET}@127.0.0.1:1/0?retries=0&deadline=0.1&connect_timeout=0.1",
    f"postgresql://user:{SECRET}@127.0.0.1:1/db?retries=0&deadline=0.1&connect_timeout=0.1",
    f"redis://user:{SECRET}/x@127.0.0.1:1/0",
    f"postgresql://user:{SECRET}@[::1/db",
    f"backtrail.db?key={SECRET}",
    f"sqlite:backtrail.db?password={SECRET}",
    f"nosuch://user:{SECRET}@host",
]
ARGUMENTS = {
    "log": ["t"],
    "show": ["t"],
    "diff": ["t", "1"],
    "find": ["--label", "x"],
    "ui": ["--no-browser"],
    "fork": ["t", "u"],
    "rewind": ["t", "1", "--yes"],
    "revert": ["t", "1"],
    "undo": ["t"],
    "redo": ["t"],
    "label": ["t", "1", "x"],
    "tag": ["t", "1", "x"],
    "rm": ["t", "--yes"],
    "files": ["list"],
    "import": ["."],
    "export": ["t"],
    "copy": ["other.db"],
    "sync": ["backtrail.db", "other.db"],
    "prune": ["--keep-last", "1", "--yes"],
    "rekey": ["key", "--yes"],
}


@pytest.mark.parametrize("form", ["--json", "--debug"])
@pytest.mark.parametrize("url", URLS)
def test_no_command_prints_the_password_of_its_store(run: Run, url: str, form: str) -> None:
    for name in COMMANDS:
        ended = run("-s", url, name, *ARGUMENTS.get(name, ()), form)
        if name != "sync":  # which takes its stores as arguments
            assert ended.code != 0, (name, ended)
        assert SECRET not in ended.out + ended.err, name


@pytest.mark.parametrize("form", ["--json", "--debug"])
@pytest.mark.parametrize("url", URLS)
def test_no_command_prints_the_password_of_another_store(run: Run, url: str, form: str) -> None:
    for arguments in (
        ("copy", url),
        ("-s", url, "copy", url),
        ("sync", "backtrail.db", url),
        ("sync", url, url),
        ("import", "langgraph-postgres", url),
        ("import", "langgraph-sqlite", url),
        ("import", url),
    ):
        ended = run(*arguments, form)
        assert ended.code != 0
        assert SECRET not in ended.out + ended.err, arguments


@pytest.mark.parametrize("form", ["--json", "--debug"])
def test_no_command_prints_a_key_or_a_token_of_the_environment(run: Run, form: str) -> None:
    for name in COMMANDS:
        environment = {"BACKTRAIL_KEY": SECRET, "BACKTRAIL_UI_TOKEN": SECRET}
        ended = run(name, *ARGUMENTS.get(name, ()), form, env=environment)
        assert SECRET not in ended.out + ended.err, name
