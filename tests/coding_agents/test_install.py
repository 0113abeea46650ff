"""Telling the agents to run the hook, and taking that back: nothing of anybody else's is lost."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtrail.agents import hook_log
from backtrail.agents.events import AGENTS, HOOK_EVENTS, Agent
from backtrail.agents.install.programs import Program, command_exists, hook_command, is_our_command, program
from backtrail.agents.install.settings import (
    BACKUP,
    apply,
    installed,
    is_installed,
    our_events,
    plan_install,
    plan_uninstall,
    plugin_text,
    removed,
)
from backtrail.agents.install.status import AgentStatus, report
from backtrail.errors import Conflict, InvalidInput

from .conftest import FakeAgent, wait_for_events

WITH_SETTINGS: list[Agent] = ["claude", "codex", "gemini"]
COMMAND = "/opt/tools/bin/backtrail hook claude"

# Settings as people have them, in many layouts.
FILES = {
    "nothing": "",
    "an empty object": "{}",
    "an empty object on a line": "{}\n",
    "one line": '{"model": "opus", "env": {"A": "1"}}',
    "tabs": '{\n\t"model": "opus"\n}\n',
    "four spaces": '{\n    "model": "opus",\n    "permissions": {\n        "allow": []\n    }\n}\n',
    "comments": '// mine\n{\n  // the model\n  "model": "opus", /* good */\n}\n',
    "other hooks": """{
  "hooks": {
    "Stop": [
      {"hooks": [{"type": "command", "command": "say done"}]}
    ]
  }
}
""",
    "empty hooks": '{\n  "hooks": {},\n  "model": "x"\n}\n',
    "an empty event": '{"hooks": {"Stop": []}}',
    "windows line ends": '{\r\n  "model": "opus"\r\n}\r\n',
    "no line end": '{\n  "a": [1, 2, 3]\n}',
    "text of all kinds": '{"ü": "\\u00fc/\\"//", "n": 1e3}',
}


def our_program(agent: Agent, home: Path) -> Program:
    found = program(agent)
    assert found.file.is_relative_to(home)
    return found


def everything(text: str) -> Any:
    from backtrail.agents.install.json_text import parse

    return parse(text, "x").plain()


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_installing_and_uninstalling_leaves_the_file_byte_for_byte_as_it_was(text: str, home: Path) -> None:
    one = our_program("claude", home)
    one.file.parent.mkdir()
    if text:
        one.file.write_bytes(text.encode())
    apply(plan_install(one, COMMAND))
    after = one.file.read_bytes().decode()
    assert is_installed(one, after, COMMAND)
    assert one.file.with_name(one.file.name + BACKUP).read_bytes() == text.encode()
    assert not plan_install(one, COMMAND).changes
    apply(plan_uninstall(one))
    assert [path.name for path in one.file.parent.iterdir()] == (["settings.json"] if text else [])
    assert not text or one.file.read_bytes() == text.encode()
    assert not plan_uninstall(one).changes


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_everything_else_in_the_settings_is_the_same(text: str, home: Path) -> None:
    one = our_program("claude", home)
    after = everything(installed(text, one, COMMAND))
    before = everything(text) if text else {}
    hooks = after.pop("hooks")
    old = before.pop("hooks", {})
    assert after == before
    for event in HOOK_EVENTS["claude"]:
        ours = {"hooks": [{"type": "command", "command": COMMAND, "timeout": 30}]}
        assert hooks.pop(event) == [*old.get(event, []), ours]
    assert not hooks


def test_what_others_wrote_since_stays_when_the_hook_is_taken_out(home: Path) -> None:
    one = our_program("claude", home)
    one.file.parent.mkdir()
    one.file.write_text(FILES["other hooks"])
    apply(plan_install(one, COMMAND))
    changed = one.file.read_text().replace("say done", "say finished")
    one.file.write_text(changed)
    apply(plan_uninstall(one))
    assert one.file.read_text() == FILES["other hooks"].replace("say done", "say finished")
    assert not one.file.with_name(one.file.name + BACKUP).exists()


def test_a_hook_of_somebody_else_in_the_same_entry_stays(home: Path) -> None:
    one = our_program("claude", home)
    both = [{"type": "command", "command": "mine"}, {"type": "command", "command": COMMAND}]
    text = json.dumps({"hooks": {"Stop": [{"matcher": "x", "hooks": both}]}})
    assert everything(removed(text, one)) == {"hooks": {"Stop": [{"matcher": "x", "hooks": both[:1]}]}}


def test_a_hook_that_was_there_before_the_first_backup_goes_as_well(home: Path) -> None:
    one = our_program("claude", home)
    one.file.parent.mkdir()
    by_hand = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "/old/backtrail hook claude"}]}]}}
    one.file.write_text(json.dumps(by_hand))
    apply(plan_install(one, COMMAND))
    apply(plan_uninstall(one))
    assert one.file.read_text() == "{}"


def test_a_command_that_moved_is_replaced(home: Path) -> None:
    one = our_program("claude", home)
    one.file.parent.mkdir()
    apply(plan_install(one, "/old/bin/backtrail hook claude"))
    apply(plan_install(one, COMMAND))
    assert is_installed(one, one.file.read_text(), COMMAND)
    assert "/old/" not in one.file.read_text()
    apply(plan_uninstall(one))
    assert not one.file.exists()


@pytest.mark.parametrize(
    "text", ["{", "[]", "3", '{"hooks": 3}', '{"hooks": {"Stop": {}}}', '{"hooks": []}', "\ufeff{}"]
)
def test_settings_that_are_not_what_they_should_be_are_refused_and_not_touched(text: str, home: Path) -> None:
    one = our_program("claude", home)
    one.file.parent.mkdir()
    one.file.write_text(text)
    with pytest.raises(InvalidInput, match="correct it first; nothing was changed"):
        plan_install(one, COMMAND)
    assert one.file.read_text() == text


def test_settings_that_are_not_text_are_refused(home: Path) -> None:
    one = our_program("claude", home)
    one.file.parent.mkdir()
    one.file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidInput, match="not text"):
        plan_install(one, COMMAND)


def test_a_file_that_changes_between_the_question_and_the_answer_is_not_overwritten(home: Path) -> None:
    one = our_program("claude", home)
    one.file.parent.mkdir()
    edit = plan_install(one, COMMAND)
    one.file.write_text('{"model": "new"}')
    with pytest.raises(Conflict, match="was changed meanwhile"):
        apply(edit)
    assert one.file.read_text() == '{"model": "new"}'


def test_settings_behind_a_link_stay_there_with_their_mode(home: Path, tmp_path: Path) -> None:
    one = our_program("claude", home)
    one.file.parent.mkdir()
    real = tmp_path / "dotfiles.json"
    real.write_text("{}\n")
    real.chmod(0o640)
    one.file.symlink_to(real)
    apply(plan_install(one, COMMAND))
    assert one.file.is_symlink()
    assert is_installed(one, real.read_text(), COMMAND)
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    apply(plan_uninstall(one))
    assert real.read_text() == "{}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dotfiles.json", "home"]


@pytest.mark.parametrize("agent", WITH_SETTINGS)
def test_each_agent_gets_its_own_events_and_units_of_time(agent: Agent, home: Path) -> None:
    one = our_program(agent, home)
    hooks = everything(installed("", one, f"/x/backtrail hook {agent}"))["hooks"]
    assert list(hooks) == list(HOOK_EVENTS[agent])
    seconds = {hook["timeout"] for entries in hooks.values() for entry in entries for hook in entry["hooks"]}
    assert seconds == {"claude": {30}, "codex": {30, 3}, "gemini": {30_000}}[agent]


def test_the_plugin_for_opencode_is_written_and_removed(home: Path) -> None:
    one = our_program("opencode", home)
    command = "/opt/it's here/backtrail hook opencode"
    apply(plan_install(one, command))
    assert json.dumps(command) in one.file.read_text()
    assert is_installed(one, one.file.read_text(), command)
    assert not plan_install(one, command).changes
    apply(plan_install(one, "/elsewhere/backtrail hook opencode"))
    apply(plan_uninstall(one))
    assert list(one.file.parent.iterdir()) == []


def test_a_plugin_that_is_not_ours_is_not_touched(home: Path) -> None:
    one = our_program("opencode", home)
    one.file.parent.mkdir(parents=True)
    one.file.write_text("export const Mine = 1\n")
    with pytest.raises(InvalidInput, match="not ours"):
        plan_install(one, COMMAND)
    assert not plan_uninstall(one).changes
    assert our_events(one, one.file.read_text()) == []


def test_the_plugin_tells_the_events_that_the_hook_knows() -> None:
    text = plugin_text("backtrail hook opencode")
    for event in HOOK_EVENTS["opencode"]:
        assert f'"{event}"' in text


def test_the_command_is_absolute_and_is_found_again() -> None:
    for agent in AGENTS:
        command = hook_command(agent)
        assert command.startswith("/") and command.endswith(f" hook {agent}")
        assert is_our_command(command, agent) and command_exists(command)
        assert hook_command(agent) == command


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        ("/x/bin/backtrail hook claude", True),
        ("'/with space/backtrail' hook claude", True),
        ("/usr/bin/python3 -m backtrail.cli hook claude", True),
        ("/x/bin/backtrail hook codex", False),
        ("/x/bin/backtrail hook claude --more", False),
        ("backtrail-like hook claude", False),
        ("echo", False),
        (3, False),
        (None, False),
    ],
)
def test_a_command_of_ours_is_known_wherever_it_was_installed(command: Any, ours: bool) -> None:
    assert is_our_command(command, "claude") is ours


def test_a_command_with_a_program_on_the_path_is_named_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Path(sys.executable).parent / "backtrail"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "backtrail").symlink_to(beside)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert hook_command("claude") == f"{tmp_path / 'bin' / 'backtrail'} hook claude"


def test_variables_move_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "x"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert program("claude").file == tmp_path / "c" / "settings.json"
    assert program("codex").file == tmp_path / "x" / "hooks.json"
    assert program("opencode").file == tmp_path / "config" / "opencode" / "plugins" / "backtrail.js"


entries = st.fixed_dictionaries(
    {
        "hooks": st.lists(
            st.fixed_dictionaries({"command": st.sampled_from(["a", COMMAND, "/y/backtrail hook claude"])}), max_size=3
        )
    },
    optional={"matcher": st.sampled_from(["", "Bash"])},
)
events = st.dictionaries(
    st.sampled_from([*HOOK_EVENTS["claude"], "PreToolUse"]), st.lists(entries, max_size=3), max_size=4
)


@settings(max_examples=60)
@given(events, st.sampled_from([None, 2, 4]), st.booleans())
def test_others_hooks_are_never_lost_whatever_stands_beside_them(hooks: Any, indent: int | None, first: bool) -> None:
    one = Program("claude", None, Path("/x"), Path("/x/settings.json"))
    text = json.dumps({"hooks": hooks, "z": 1} if first else {"z": 1, "hooks": hooks}, indent=indent)

    def others(settings: Any) -> list[tuple[str, str]]:
        found = settings.get("hooks", {})
        return [
            (event, hook["command"])
            for event in sorted(found)
            for entry in found[event]
            for hook in entry["hooks"]
            if not is_our_command(hook["command"], "claude")
        ]

    after = installed(text, one, COMMAND)
    assert is_installed(one, after, COMMAND)
    without = removed(after, one)
    assert others(json.loads(after)) == others(json.loads(without)) == others(json.loads(text))
    assert our_events(one, without) == []


# -- how it stands ----------------------------------------------------------------------------------------------------


def status_of(agent: Agent) -> AgentStatus:
    return next(one for one in report().agents if one.agent == agent)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing of the machine's agents."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def put_program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_an_agent_that_is_not_there_is_said_to_be_missing(programs: Path) -> None:
    for one in report().agents:
        assert (one.found, one.version, one.installed, one.to_do) == (False, None, False, [])


def test_the_status_tells_the_version_and_what_to_do_first(programs: Path) -> None:
    put_program(programs, "claude", "echo '2.1.325 (Claude Code)'")
    one = status_of("claude")
    assert (one.found, one.version, one.installed) == (True, "2.1.325", False)
    assert one.to_do == ["backtrail agents install claude"]


def test_a_program_that_fails_has_no_version(programs: Path) -> None:
    put_program(programs, "claude", "exit 3")
    assert status_of("claude").version is None


def test_the_status_tells_when_the_hook_ran_and_how_far_behind_it_is(programs: Path, agent: FakeAgent) -> None:
    one = program("claude")
    apply(plan_install(one, hook_command("claude")))
    assert any("has not run yet" in line for line in status_of("claude").to_do)
    agent.say("hello")
    agent.hook("UserPromptSubmit", prompt="x")
    agent.say("more")
    status = status_of("claude")
    assert status.installed and status.last_fired is not None and status.last_error is None
    assert status.session == "claude/session-1"
    assert status.behind == len(agent.transcript.read_bytes().splitlines()[1]) + 1
    assert status.to_do == []


def test_the_status_tells_what_went_wrong(programs: Path, agent: FakeAgent) -> None:
    apply(plan_install(program("claude"), "/gone/backtrail hook claude"))
    agent.hook("UserPromptSubmit", prompt="x", env={"BACKTRAIL_AGENTS_STORE": "nosuch://x"})
    wait_for_events(1)
    status = status_of("claude")
    assert status.last_error is not None and "nosuch" in status.last_error
    assert any("the program in the hook is gone" in line for line in status.to_do)


@pytest.mark.parametrize(
    ("agent", "switch", "told"),
    [
        ("claude", {"disableAllHooks": True}, "disableAllHooks"),
        ("gemini", {"hooksConfig": {"enabled": False}}, "hooksConfig.enabled"),
        ("gemini", {"hooksConfig": {"disabled": ["backtrail"]}}, "/hooks enable backtrail"),
    ],
)
def test_hooks_that_are_switched_off_are_found(programs: Path, agent: Agent, switch: Any, told: str) -> None:
    one = program(agent)
    one.file.parent.mkdir()
    one.file.write_text(json.dumps(switch))
    apply(plan_install(one, hook_command(agent)))
    assert any(told in line for line in status_of(agent).to_do)


def test_settings_that_cannot_be_read_are_something_to_do(programs: Path) -> None:
    one = program("claude")
    one.file.parent.mkdir()
    one.file.write_text("{")
    assert "is not JSON at line 1" in status_of("claude").to_do[0]


def test_a_store_that_cannot_be_opened_is_told(programs: Path, home: Path) -> None:
    folder = home / ".local/share/backtrail"
    folder.mkdir(parents=True)
    (folder / "agents.db").write_bytes(b"garbage" * 1000)
    found = report()
    assert found.store_error is not None and found.store.endswith("agents.db")
    hook_log.write(agent="claude")


# The answers of a real `codex app-server`, shortened; the script takes the place of the program.
APP_SERVER = """
[ "$1" = app-server ] || { echo codex-cli 0.169.0; exit; }
read initialize; echo '{"id": 0, "result": {"codexHome": "x"}}'
read initialized; read request
echo '{"method": "configWarning", "params": {}}'
echo 'not json'
echo '{"id": 1, "result": {"data": [{"cwd": "/", "hooks": HOOKS, "warnings": [], "errors": []}]}}'
cat > /dev/null
"""


@pytest.mark.parametrize(
    ("statuses", "trusted"),
    [
        (["trusted", "trusted"], "trusted"),
        (["trusted", "untrusted"], "untrusted"),
        (["modified"], "untrusted"),
        ([], "unknown"),
    ],
)
def test_codex_is_asked_whether_the_person_has_approved_the_hook(
    programs: Path, statuses: list[str], trusted: str
) -> None:
    hooks = [
        {"command": hook_command("codex"), "eventName": "stop", "enabled": True, "trustStatus": each}
        for each in statuses
    ]
    hooks.append({"command": "somebody else's", "enabled": True, "trustStatus": "untrusted"})
    put_program(programs, "codex", APP_SERVER.replace("HOOKS", json.dumps(hooks).replace("'", "")))
    apply(plan_install(program("codex"), hook_command("codex")))
    status = status_of("codex")
    assert (status.version, status.trusted) == ("0.169.0", trusted)
    assert any("/hooks" in line for line in status.to_do) == (trusted == "untrusted")


@pytest.mark.parametrize("script", ["exit 1", "echo '[]'", 'echo \'{"id": 1, "result": 3}\'', "cat"])
def test_a_codex_that_tells_nothing_is_unknown(programs: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from backtrail.agents.install import codex_trust

    monkeypatch.setattr(codex_trust, "_SECONDS", 2.0)
    put_program(programs, "codex", script)
    apply(plan_install(program("codex"), hook_command("codex")))
    assert status_of("codex").trusted == "unknown"
