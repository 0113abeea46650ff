"""Properties of every command: choice of the store, help, exit codes, JSON, terminals, documentation."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import backtrail
from backtrail.cli.main import COMMANDS
from backtrail.cli.main import backtrail as group

from .conftest import Run, run_in_shell


def _with_subcommands(name: str) -> list[click.Command]:
    """A command and, if it is a group, its subcommands."""
    command = _command(name)
    return [command, *(command.commands.values() if isinstance(command, click.Group) else ())]


DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def _command(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_all_of_its_options(name: str) -> None:
    text = DOCS.read_text()
    section = re.search(rf"^### `backtrail {name}\b.*?(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/cli.md has no section on backtrail {name}"
    common = {"--store", "--json", "--debug", "--help"}
    for command in _with_subcommands(name):
        if command.name != name:
            assert f"`backtrail {name} {command.name}" in section[0]
        for parameter in command.params:
            longest = max(parameter.opts, key=len)
            if isinstance(parameter, click.Option) and longest not in common:
                assert f"`{longest}" in section[0], f"backtrail {name} {longest} is not documented"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_and_the_common_options(name: str, run: Run) -> None:
    for command in _with_subcommands(name):
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "--store", "--debug"} <= options or isinstance(command, click.Group)
        assert command.help
        assert f"backtrail {name}" in (command.epilog or "")
        assert run(*([name] if command.name == name else [name, str(command.name)]), "--help").code == 0


def test_the_store_is_the_option_then_the_environment_then_the_directory(
    run: Run, store_dir: Path, tmp_path: Path
) -> None:
    with backtrail.open(store_dir / "second.db") as store:
        store.thread("elsewhere").save({})
    assert "talk" in run("threads").out
    assert "elsewhere" in run("threads", env={"BACKTRAIL_STORE": "second.db"}).out
    assert "elsewhere" in run("-s", "second.db", "threads").out
    assert "talk" in run("threads", "-s", "backtrail.db", env={"BACKTRAIL_STORE": "second.db"}).out


def test_looking_at_a_store_that_is_not_there_does_not_make_it(run: Run, store_dir: Path) -> None:
    for command in (("threads",), ("log", "x"), ("stats",)):
        assert run(*command, "-s", "typo.db").code == 3
        assert run(*command, "-s", "jsonl:typo").code == 3
    assert not list(store_dir.glob("typo*"))


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("show", "nobody"), 3),
        (("show", "talk", "no-such-label"), 3),
        (("shwo",), 2),
        (("log", "talk", "--limit", "x"), 2),
        (("threads", "-s", "nosuch://x"), 2),
        (("threads", "-s", "redis://127.0.0.1:1/0"), 6),
    ],
)
def test_an_error_is_one_line_and_has_its_own_exit_code(run: Run, args: tuple[str, ...], code: int) -> None:
    ended = run(*args)
    assert ended.code == code
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) <= 2
    as_json = run(*args, "--json")
    assert json.loads(as_json.out)["error"]["exit_code"] == as_json.code == code


def test_debug_shows_the_traceback(run: Run) -> None:
    assert "Traceback" in run("show", "nobody", "--debug").err


def test_a_misspelt_command_gets_a_hint(run: Run) -> None:
    assert "did you mean `backtrail show`?" in run("shwo").err


def test_stored_control_characters_never_reach_the_terminal(run: Run, store_dir: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2Jboo\x9b31m\u202egnp.exe\u2066"
    with backtrail.open(store_dir / "backtrail.db") as store:
        thread = store.thread(f"evil{evil}")
        thread.save({"messages": [{"role": evil, "content": evil}], evil: {evil: evil}}, label=evil, tags=[evil])
        name = thread.id
    for args in (
        ("threads",),
        ("log", name),
        ("show", name),
        ("diff", name, "1", "1"),
        ("find", "--tag", evil),
        ("show", name, evil + "x"),
    ):
        ended = run(*args)
        assert not set("\x1b\x07\x9b\u202e\u2066") & set(ended.out + ended.err), args


def test_a_terminal_gets_colour_and_a_pipe_does_not(store_dir: Path) -> None:
    out = _on_a_terminal(store_dir, "log", "talk")
    assert "\x1b[" in out
    assert "token bucket" in out


@pytest.mark.parametrize("args", [("threads",), ("log", "talk"), ("show", "talk"), ("doctor",)])
def test_a_terminal_that_wants_no_colour_gets_plain_text(store_dir: Path, args: tuple[str, ...]) -> None:
    assert "\x1b[" in _on_a_terminal(store_dir, *args)
    assert "\x1b[" not in _on_a_terminal(store_dir, *args, NO_COLOR="1")


def test_a_narrow_terminal_gets_fewer_columns_and_whole_names(store_dir: Path) -> None:
    wide, narrow = (_on_a_terminal(store_dir, "threads", COLUMNS=width, NO_COLOR="1") for width in ("120", "22"))
    assert "size" in wide
    lines = narrow.splitlines()
    assert lines[0].split() == ["thread", "updated"]
    assert [line.split()[0] for line in lines[1:]] == ["other", "talk-fork", "talk"]
    assert max(map(len, lines)) <= 22


def test_a_pipe_gets_a_thread_on_one_line_however_long_its_name_is(run: Run, store_dir: Path) -> None:
    name = "a name " * 60 + "end"
    with backtrail.open(store_dir / "backtrail.db") as store:
        store.thread(name).save({"messages": [{"role": "user", "content": f"one\n\n{'word ' * 50_000}end\ntwo"}]})
    assert name in run("threads").out
    shown = run("show", name).out
    assert f"  one\n  \n  {'word ' * 50_000}end\n  two\n" in shown
    assert len(shown) < 260_000


def test_a_confirmation_on_a_terminal_can_be_declined(store_dir: Path) -> None:
    out = _on_a_terminal(store_dir, "rm", "other", typed=b"n\n")
    assert "Go on?" in out
    with backtrail.open(store_dir / "backtrail.db") as store:
        assert store.thread("other").exists()


def _on_a_terminal(store_dir: Path, *args: str, typed: bytes = b"", **environment: str) -> str:
    our_end, their_end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "backtrail.cli", *args],
        cwd=store_dir,
        stdin=their_end,
        stdout=their_end,
        stderr=their_end,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "200", "NO_COLOR": ""} | environment,
    ) as process:
        os.close(their_end)
        os.write(our_end, typed)
        seen = b""
        while True:
            try:
                chunk = os.read(our_end, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not chunk:
                break
            seen += chunk
        process.wait(30)
    os.close(our_end)
    return seen.decode()


def test_a_pipe_that_is_closed_early_is_no_error(store_dir: Path) -> None:
    ended = run_in_shell(store_dir, "log talk | head -n 1")
    assert ended.code == 0
    assert ended.out.startswith("◉")
    assert "Traceback" not in ended.err


def test_shell_completion_knows_commands_and_threads(store_dir: Path) -> None:
    environment = os.environ | {
        "_BACKTRAIL_COMPLETE": "bash_complete",
        "COMP_WORDS": "backtrail log ta",
        "COMP_CWORD": "2",
    }
    ended = subprocess.run(
        [sys.executable, "-c", "from backtrail.cli.main import main; main()"],
        cwd=store_dir,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert {line.partition(",")[2] for line in ended.stdout.splitlines()} == {"talk", "talk-fork"}


def test_help_and_log_import_neither_the_server_nor_other_engines(store_dir: Path) -> None:
    code = (
        "import sys; sys.argv = ['backtrail', 'log', 'talk']\n"
        "from backtrail.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('starlette', 'uvicorn', 'redis', 'psycopg', 'asyncio', 'backtrail.server')\n"
        "print(*[m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=store_dir, capture_output=True, text=True, check=True)
    assert ended.stderr.strip() == ""


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md", "docs/inspector.md", "docs/http-api.md"])
def test_every_example_in_the_docs_names_commands_and_options_that_exist(page: str) -> None:
    text = (DOCS.parents[1] / page).read_text()
    for line in re.findall(r"^\$ (?:\w+=\S+ )?backtrail (.+)$", text, re.MULTILINE):
        words = re.split(r"\s{2,}|[|>&]", line)[0].split()
        known = {option for parameter in group.params for option in parameter.opts}
        at: click.Command = group
        for word in words:
            if isinstance(at, click.Group) and word in at.list_commands(click.Context(at)):
                at = at.get_command(click.Context(at), word) or at
                known |= {option for p in at.params for option in [*p.opts, *p.secondary_opts]}
            elif word.startswith("-"):
                assert word in known, f"{page}: backtrail {line}"
        assert at is not group, f"{page}: backtrail {line}"
