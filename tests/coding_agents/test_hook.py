"""The hook never harms the agent: it ends with 0 or 1, in time, and prints nothing that was not asked for."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from backtrail.agents import hook_log
from backtrail.agents.hook import DEFAULT_LIMIT, time_limit
from backtrail.agents.session_lock import session_lock
from backtrail.agents.sessions import AgentSession
from backtrail.agents.user_store import data_directory, open_user_store
from backtrail.errors import LockTimeout

from .conftest import PATIENCE, FakeAgent, run_hook, wait_for_events

SHORT = {"BACKTRAIL_HOOK_SECONDS": "1"}


def check_harmless(ran: subprocess.CompletedProcess[bytes], code: int = 1) -> str:
    """Check the outcome of a hook; returns what it said on standard error."""
    assert ran.returncode == code, ran
    assert ran.stdout == b""
    told = ran.stderr.decode()
    assert "Traceback" not in told and told.count("\n") <= 1
    assert bool(told) == bool(code)
    return told


def events(agent: FakeAgent) -> list[str]:
    """The events of the session that are in the store, oldest first."""
    with open_user_store() as store:
        return [one.custom["event"] for one in AgentSession(store, agent.agent, agent.session_id).thread.history()]


@contextmanager
def directory_in_use(agent: FakeAgent) -> Iterator[None]:
    """Hold the lock of the project: a snapshot waits for it."""
    handle = os.open(agent.project, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def workers(home: Path) -> list[psutil.Process]:
    """The processes of hooks that were started with this home directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(home) and "hook" in process.cmdline():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_turn_is_captured_and_nothing_is_said(agent: FakeAgent) -> None:
    for name in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
        assert check_harmless(agent.hook(name, prompt="do it", prompt_id="id-1"), 0) == ""
    wait_for_events(4)
    assert events(agent) == ["session_start", "prompt", "turn_end", "session_end"]


def test_the_prompt_is_saved_when_the_agent_goes_on(agent: FakeAgent) -> None:
    agent.write("a.txt", "before")
    check_harmless(agent.hook("UserPromptSubmit", prompt="do it"), 0)
    agent.write("a.txt", "after")
    with open_user_store() as store:
        session = agent.read(store)
        (turn,) = session.turns()
        assert turn.before is not None
        (change,) = session.workspace().diff(turn.before).changes
        assert change.text is not None and "-before" in change.text


@pytest.mark.parametrize("arguments", [[], ["cursor"], ["claude", "more"], ["--json"], ["claude", "--nonsense"], [""]])
def test_wrong_arguments_end_with_1_and_not_with_2(arguments: list[str]) -> None:
    assert "backtrail agents status" in check_harmless(run_hook(arguments, b"{}"))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00\xff" * 1000,
        b"[]",
        b"{" * 200_000,
        b'{"hook_event_name": "Stop"}',
        b'{"hook_event_name": "Stop", "session_id": 7, "cwd": []}',
        b'{"hook_event_name": "UserPromptSubmit", "session_id": "../x", "cwd": "/"}',
        b'{"hook_event_name": "Stop", "session_id": "s", "cwd": "/", "x": "' + b"x" * (70 * 2**20) + b'"}',
    ],
)
def test_a_payload_that_cannot_be_read_ends_with_1(payload: bytes) -> None:
    check_harmless(run_hook(["claude"], payload))


@pytest.mark.parametrize("payload", [b"{}", b'{"hook_event_name": "PreToolUse"}', b'{"hook_event_name": null}'])
def test_an_event_that_is_not_for_us_is_nothing(payload: bytes) -> None:
    check_harmless(run_hook(["claude"], payload), 0)
    assert hook_log.read() == []


@pytest.mark.parametrize(
    "closed", ["<&-", "<&- >&-", "<&- >&- 2>&-", ">&-", "2>&-", "<&- 2>&-", "</dev/full", ">/dev/full"]
)
def test_streams_that_the_agent_has_closed_do_no_harm(agent: FakeAgent, home: Path, closed: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m backtrail.cli hook claude {closed}"
    payload = agent.payload("UserPromptSubmit", prompt="backtrail log")
    ran = subprocess.run(command, shell=True, input=payload, capture_output=True, timeout=PATIENCE, check=False)
    assert ran.returncode in (0, 1)
    assert b"Traceback" not in ran.stderr
    wait_until(lambda: not workers(home))


def test_an_answer_that_nobody_reads_does_no_harm(agent: FakeAgent) -> None:
    command = f"{shlex.quote(sys.executable)} -m backtrail.cli hook claude | true; exit ${{PIPESTATUS[0]}}"
    payload = agent.payload("UserPromptSubmit", prompt="backtrail log")
    ran = subprocess.run(["bash", "-c", command], input=payload, capture_output=True, timeout=PATIENCE, check=False)
    assert ran.returncode in (0, 1)


def test_a_store_that_is_damaged_is_told_and_logged(agent: FakeAgent) -> None:
    check_harmless(agent.hook("SessionStart"), 0)
    wait_for_events(1)
    path = data_directory() / "agents.db"
    path.write_bytes(b"not a database" * 1000)
    for companion in ("-wal", "-shm"):
        path.with_name(path.name + companion).unlink(missing_ok=True)
    assert "not captured" in check_harmless(agent.hook("UserPromptSubmit", prompt="x"))
    assert "error" in wait_for_events(2)[-1]
    check_harmless(agent.hook("Stop"), 0)
    assert "error" in wait_for_events(3)[-1]


def test_a_store_that_another_program_has_locked_keeps_the_agent_no_longer_than_the_limit(agent: FakeAgent) -> None:
    check_harmless(agent.hook("SessionStart"), 0)
    wait_for_events(1)
    with sqlite3.connect(data_directory() / "agents.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "background" in check_harmless(agent.hook("UserPromptSubmit", SHORT, prompt="x"))
        other.execute("ROLLBACK")
    assert "error" not in wait_for_events(2)[-1]
    assert events(agent) == ["session_start", "prompt"]


def test_a_full_disk_is_told_and_logged_and_the_next_event_is_captured(agent: FakeAgent) -> None:
    check_harmless(agent.hook("SessionStart"), 0)
    wait_for_events(1)
    for number in range(30):
        agent.write(f"{number}.bin", os.urandom(3000).hex())
    full = data_directory().joinpath("agents.db").stat().st_size

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (full, full))

    payload = agent.payload("UserPromptSubmit", prompt="x", prompt_id="id-1")
    check_harmless(run_hook(["claude"], payload, preexec_fn=limit_files))
    check_harmless(agent.hook("UserPromptSubmit", prompt="x", prompt_id="id-1"), 0)
    assert events(agent)[-1] == "prompt"


@pytest.mark.parametrize("home", ["/dev/null", "/proc/nowhere"])
def test_a_home_directory_that_cannot_be_written_does_no_harm(agent: FakeAgent, home: str) -> None:
    payload = agent.payload("UserPromptSubmit", prompt="x")
    check_harmless(run_hook(["claude"], payload, {"HOME": home}))


@pytest.mark.parametrize("module", ["msgspec", "zstandard", "sqlite3", "blake3"])
def test_a_module_that_cannot_be_imported_does_no_harm(agent: FakeAgent, tmp_path: Path, module: str) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / f"{module}.py").write_text("raise ImportError('broken on purpose')\n")
    told = check_harmless(agent.hook("UserPromptSubmit", {"PYTHONPATH": str(broken)}, prompt="x"))
    assert "broken on purpose" in told


_TELLING = """
import os, sys
from backtrail.agents import hook
def end(code, end=os._exit):
    with open("second" if "backtrail.agents.hook_worker" in sys.modules else "first", "w") as file:
        file.write(" ".join(sys.modules))
    end(code)
os._exit = end
hook.main(["claude"])
"""


@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop"])
def test_the_hook_imports_nothing_that_a_capture_can_do_without(agent: FakeAgent, tmp_path: Path, event: str) -> None:
    check_harmless(agent.hook("SessionStart"), 0)
    wait_for_events(1)
    agent.write("a.txt", "one")
    agent.say("hello")
    command = [sys.executable, "-c", _TELLING]
    subprocess.run(command, input=agent.payload(event, prompt="x"), cwd=tmp_path, check=True, timeout=PATIENCE)
    assert "error" not in wait_for_events(2)[-1]
    wait_until(lambda: (tmp_path / "second").exists() and (tmp_path / "second").read_text())
    first, second = ((tmp_path / name).read_text().split() for name in ("first", "second"))
    assert not {"msgspec", "json", "pathlib", "sqlite3"}.intersection(first)
    assert {"backtrail.agents.capture", "backtrail.engines.sqlite.engine"} <= {*second}
    slow = {"asyncio", "click", "concurrent", "dataclasses", "email", "http", "inspect", "logging", "random", "rich"}
    slow |= {"secrets", "socket", "ssl", "subprocess", "tempfile", "typing_extensions", "zipfile"}
    ours = ("aio", "cli", "engines.jsonl", "engines.memory", "engines.postgres", "engines.redis", "history.diff")
    ours += ("importers", "options", "replicate.mirror", "run", "sequence_diff", "server", "session", "workspace.diff")
    assert not slow.union(f"backtrail.{name}" for name in ours).intersection(second)


def test_the_module_that_msgspec_is_imported_without_can_be_imported_later() -> None:
    program = (
        "import sys; from backtrail.agents import hook; hook._import_msgspec()\n"
        "assert 'msgspec' in sys.modules and 'typing_extensions' not in sys.modules\n"
        "import msgspec, typing_extensions\n"
        "class T(typing_extensions.TypedDict, total=False): n: typing_extensions.Required[int]; s: str\n"
        "assert msgspec.json.decode(b'{\"n\": 1}', type=T) == {'n': 1}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)


def test_the_agent_need_not_wait_at_the_end_of_a_turn(agent: FakeAgent) -> None:
    check_harmless(agent.hook("UserPromptSubmit", prompt="x", prompt_id="id-1"), 0)
    with directory_in_use(agent):
        check_harmless(agent.hook("Stop", prompt_id="id-1"), 0)
        assert events(agent) == ["prompt"]
    wait_for_events(2)
    assert events(agent) == ["prompt", "turn_end"]


def test_a_prompt_that_comes_early_waits_for_the_end_of_the_turn_before(agent: FakeAgent) -> None:
    check_harmless(agent.hook("UserPromptSubmit", prompt="one", prompt_id="id-1"), 0)
    with directory_in_use(agent):
        check_harmless(agent.hook("Stop", prompt_id="id-1"), 0)
        early = subprocess.Popen([sys.executable, "-m", "backtrail.cli", "hook", "claude"], stdin=subprocess.PIPE)
        assert early.stdin is not None
        early.stdin.write(agent.payload("UserPromptSubmit", prompt="two", prompt_id="id-2"))
        early.stdin.close()
        time.sleep(0.3)
        assert early.poll() is None
    assert early.wait(PATIENCE) == 0
    assert events(agent) == ["prompt", "turn_end", "prompt"]
    with open_user_store() as store:
        assert not agent.read(store).turn(1).interrupted


def test_a_prompt_that_takes_too_long_lets_the_agent_go_on_and_is_marked_as_late(agent: FakeAgent) -> None:
    with directory_in_use(agent):
        assert "background" in check_harmless(agent.hook("UserPromptSubmit", SHORT, prompt="x"))
    wait_for_events(1)
    with open_user_store() as store:
        assert agent.read(store).head.custom["late"] is True


def test_a_worker_that_is_killed_at_the_end_of_a_turn_is_made_up_for_by_the_next_prompt(
    agent: FakeAgent, home: Path
) -> None:
    check_harmless(agent.hook("UserPromptSubmit", prompt="one", prompt_id="id-1"), 0)
    agent.write("a.txt", "by the agent")
    with directory_in_use(agent):
        check_harmless(agent.hook("Stop", prompt_id="id-1"), 0)
        (worker,) = workers(home)
        worker.send_signal(signal.SIGKILL)
        wait_until(lambda: not workers(home))
    check_harmless(agent.hook("UserPromptSubmit", prompt="two", prompt_id="id-2"), 0)
    assert events(agent) == ["prompt", "turn_end", "prompt"]
    with open_user_store() as store:
        first = agent.read(store).turn(1)
        assert first.interrupted and first.before is not None and first.after is not None
        found = agent.read(store).workspace().diff(first.before, first.after)
        assert [change.path for change in found.changes] == ["a.txt"]


def test_a_worker_that_is_killed_at_a_prompt_is_told(agent: FakeAgent, home: Path) -> None:
    command = [sys.executable, "-m", "backtrail.cli", "hook", "claude"]
    with directory_in_use(agent):
        hook = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert hook.stdin is not None
        hook.stdin.write(agent.payload("UserPromptSubmit", prompt="one", prompt_id="id-1"))
        hook.stdin.close()
        hook.stdin = None
        wait_until(lambda: len(workers(home)) == 2)
        time.sleep(0.2)
        next(worker for worker in workers(home) if worker.pid != hook.pid).send_signal(signal.SIGKILL)
        out, err = hook.communicate(timeout=PATIENCE)
    assert (hook.returncode, out) == (1, b"")
    assert b"killed" in err
    check_harmless(agent.hook("UserPromptSubmit", prompt="one", prompt_id="id-1"), 0)
    assert events(agent) == ["prompt"]


def test_a_hook_that_is_killed_leaves_the_worker_to_finish(agent: FakeAgent, home: Path) -> None:
    command = [sys.executable, "-m", "backtrail.cli", "hook", "claude"]
    with directory_in_use(agent):
        hook = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)
        assert hook.stdin is not None
        hook.stdin.write(agent.payload("UserPromptSubmit", prompt="one", prompt_id="id-1"))
        hook.stdin.close()
        wait_until(lambda: len(workers(home)) == 2)
        time.sleep(0.2)
        os.killpg(hook.pid, signal.SIGKILL)  # as an agent does that loses patience
        hook.wait()
    wait_for_events(1)
    assert events(agent) == ["prompt"]


def test_input_that_never_ends_keeps_the_agent_no_longer_than_the_limit(home: Path) -> None:
    hook = subprocess.Popen(
        [sys.executable, "-m", "backtrail.cli", "hook", "claude"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **SHORT},
    )
    started = time.monotonic()
    assert hook.wait(PATIENCE) == 1
    assert time.monotonic() - started < PATIENCE / 2
    wait_until(lambda: not workers(home))
    assert hook.stdin is not None and hook.stderr is not None
    hook.stdin.close()
    hook.stderr.close()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2.5", 2.5),
        ("", DEFAULT_LIMIT),
        ("x", DEFAULT_LIMIT),
        ("-1", DEFAULT_LIMIT),
        ("nan", DEFAULT_LIMIT),
        ("1e9", DEFAULT_LIMIT),
    ],
)
def test_the_limit_is_a_variable(monkeypatch: pytest.MonkeyPatch, given: str, seconds: float) -> None:
    monkeypatch.setenv("BACKTRAIL_HOOK_SECONDS", given)
    assert time_limit() == seconds


def test_all_files_are_for_this_user_only(agent: FakeAgent) -> None:
    check_harmless(agent.hook("UserPromptSubmit", prompt="a secret prompt"), 0)
    wait_for_events(1)
    for path in [data_directory(), *data_directory().rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    assert "secret" not in (data_directory() / hook_log.NAME).read_text()


def test_the_log_is_replaced_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_log, "MAX_BYTES", 1000)
    for number in range(40):
        hook_log.write(number=number)
    folder = data_directory()
    assert sorted(path.name for path in folder.iterdir()) == ["hook.log", "hook.log.1"]
    assert all(path.stat().st_size < 1200 for path in folder.iterdir())
    numbers = [entry["number"] for entry in hook_log.read()]
    assert numbers == list(range(numbers[0], 40)) and len(numbers) > 10


def test_a_damaged_line_of_the_log_is_left_out() -> None:
    hook_log.write(number=1)
    with (data_directory() / hook_log.NAME).open("a") as file:
        file.write('{"cut\n[]\n')
    hook_log.write(number=2)
    assert [entry["number"] for entry in hook_log.read()] == [1, 2]


def test_a_session_is_held_by_one_process_at_a_time() -> None:
    with session_lock("claude/x", 0), pytest.raises(LockTimeout, match="claude/x"), session_lock("claude/x", 0.05):
        pass
    with session_lock("claude/x", 0):
        pass


def test_help_is_the_ordinary_one() -> None:
    ran = run_hook(["--help"], b"")
    assert ran.returncode == 0 and b"backtrail hook" in ran.stdout


def test_the_key_of_the_store_may_be_in_a_file_beside_it(agent: FakeAgent) -> None:
    folder = data_directory()
    folder.mkdir(parents=True)
    (folder / "agents.key").write_text("0" * 63 + "1\n")
    agent.say("a conversation that is private")
    check_harmless(agent.hook("UserPromptSubmit", prompt="x"), 0)
    assert events(agent) == ["prompt"]
    stored = b"".join(path.read_bytes() for path in folder.glob("agents.db*"))
    assert b"private" not in stored


def test_another_store_may_be_named(agent: FakeAgent, tmp_path: Path) -> None:
    check_harmless(
        agent.hook("UserPromptSubmit", {"BACKTRAIL_AGENTS_STORE": f"jsonl:{tmp_path / 'js'}"}, prompt="x"), 0
    )
    assert (tmp_path / "js" / "backtrail.json").exists()
    assert not (data_directory() / "agents.db").exists()


def test_json_is_what_the_log_holds() -> None:
    hook_log.write(agent="claude", error="x" * 10_000)
    (line,) = (data_directory() / hook_log.NAME).read_text().splitlines()
    assert len(json.loads(line)["error"]) == 500
