"""What is written into an agent's user-level settings, and how it is taken out again.

A change is a pure function of the file's text: `installed` adds our entries, after removing those of an earlier
installation, and `removed` takes them out. Before the first change, the file is copied to `<file>.backtrail-backup`,
empty if there was none. If the file is still what `installed` makes of that copy, `uninstall` puts the copy back, byte
for byte; else only our entries go, and what others wrote since stays.
"""

from __future__ import annotations

import importlib.resources
import json
import os
from pathlib import Path
from typing import Any

import msgspec

from backtrail import owned_files
from backtrail.agents.events import HOOK_EVENTS, Agent
from backtrail.agents.install import json_text
from backtrail.agents.install.json_text import Value
from backtrail.agents.install.mcp_servers import server_file, with_server, without_server
from backtrail.agents.install.programs import Program, is_our_command
from backtrail.errors import Conflict, InvalidInput

SECONDS = 30  #: after which an agent ends the hook; the hook ends sooner by itself
BACKUP = ".backtrail-backup"
PLUGIN_MARK = "// Written by `backtrail agents install`;"
_COMMAND_MARK = '"the hook command"'  # in the plugin's text, where the command goes


class Edit(msgspec.Struct, frozen=True):
    """A change of one file."""

    agent: Agent
    path: Path
    before: str | None  #: None if there is no such file
    after: str | None  #: None if there will be none
    removes: bool = False  #: our entries go: no backup is needed afterwards

    @property
    def changes(self) -> bool:
        """True if there is anything to do."""
        return self.before != self.after


def plan_install(program: Program, command: str) -> Edit:
    """The change that makes an agent run `command`."""
    before = read_text(program.file)
    if program.agent == "opencode":
        if before is not None and not before.startswith(PLUGIN_MARK):
            raise InvalidInput(f"{program.file} is not ours: move it away first; nothing was changed")
        return Edit(program.agent, program.file, before, plugin_text(command))
    if before is not None and before.strip() and is_installed(program, before, command):
        return Edit(program.agent, program.file, before, before)
    return Edit(program.agent, program.file, before, installed(before or "", program, command))


def plan_server(hook: Edit, program: Program, words: list[str] | None) -> list[Edit]:
    """The change of the hook together with the one that makes an agent start the MCP server `words`, or, without words,
    no longer start it. They are one change if both are in one file."""
    path = server_file(program)
    if path == hook.path:
        if words is None:
            return [hook]  # `plan_uninstall` has taken it out
        return [msgspec.structs.replace(hook, after=with_server(hook.after or "", program.agent, words, str(path)))]
    before = read_text(path)
    if words is not None:
        return [hook, Edit(program.agent, path, before, with_server(before or "", program.agent, words, str(path)))]
    after = None if before is None else without_server(before, program.agent, str(path))
    if after != before and (after or "").strip() in ("", "{}") and read_text(_backup(path)) == "":
        after = None  # the file was made for it
    return [hook, Edit(program.agent, path, before, after, removes=True)]


def plan_uninstall(program: Program) -> Edit:
    """The change that takes our entries out again."""
    before = read_text(program.file)
    after = before
    if before is not None and server_file(program) == program.file:
        after = without_server(before, program.agent, str(program.file))
    if after is not None and our_commands(program, after):
        backup = read_text(_backup(program.file))
        if program.agent == "opencode":
            after = None
        elif backup is not None and _is_made_of(after, backup, program):
            after = backup or None
        else:
            after = removed(after, program)
    return Edit(program.agent, program.file, before, after, removes=True)


def _is_made_of(text: str, backup: str, program: Program) -> bool:
    """True if a text is just what installing made of a backup that has nothing of ours."""
    if backup.strip() and our_commands(program, backup):
        return False
    return installed(backup, program, our_commands(program, text)[0]) == text


def apply(edit: Edit) -> None:
    """Carry a change out: all of it, or nothing."""
    path = edit.path.resolve()  # people keep their settings elsewhere, behind a link
    if read_text(path) != edit.before:
        raise Conflict(str(edit.path), message=f"{edit.path} was changed meanwhile: try again; nothing was changed")
    backup = _backup(path)
    owned_files.make_directories(path.parent)
    if not edit.removes and path.suffix != ".js" and not backup.exists():  # the plugin is ours alone
        owned_files.replace_atomically(backup, [(edit.before or "").encode()])
    if edit.after is None:
        path.unlink(missing_ok=True)
    else:
        _replace(path, edit.after)
    if edit.removes:
        backup.unlink(missing_ok=True)


def our_commands(program: Program, text: str) -> list[str]:
    """The commands in an agent's settings that run our hook, each once, in order."""
    if program.agent == "opencode":
        if not text.startswith(PLUGIN_MARK):
            return []
        line = next((line for line in text.splitlines() if line.startswith("const COMMAND = ")), "")
        return [json.loads(line.removeprefix("const COMMAND = "))] if line else []
    found = [command for _, _, command in _our_hooks(json_text.parse(text, str(program.file)), program)]
    return list(dict.fromkeys(found))


def our_events(program: Program, text: str) -> list[str]:
    """The events at which an agent's settings run our hook."""
    if program.agent == "opencode":
        return list(HOOK_EVENTS["opencode"]) if our_commands(program, text) else []
    return list(dict.fromkeys(event for event, _, _ in _our_hooks(json_text.parse(text, str(program.file)), program)))


def is_installed(program: Program, text: str, command: str) -> bool:
    """True if settings run this command at every event."""
    return our_commands(program, text) == [command] and set(our_events(program, text)) == set(
        HOOK_EVENTS[program.agent]
    )


def installed(text: str, program: Program, command: str) -> str:
    """The text of a settings file with our entries."""
    text = removed(text, program) if text.strip() else "{}\n"
    if text == "{}\n":  # there is no layout to keep
        hooks = {event: [_entry(program, event, command)] for event in HOOK_EVENTS[program.agent]}
        return json.dumps({"hooks": hooks}, indent=2) + "\n"
    for event in HOOK_EVENTS[program.agent]:
        text = _with_entry(text, program, event, command)
    return text


def removed(text: str, program: Program) -> str:
    """The text of a settings file without our entries, and without what is empty then."""
    where = str(program.file)
    while True:
        root = json_text.parse(text, where)
        found = next(iter(_our_hooks(root, program)), None)
        if found is None:
            return text
        event, numbers, _ = found
        text = _without(text, root, event, *numbers)


def plugin_text(command: str) -> str:
    """The plugin for opencode that runs `command`."""
    source = importlib.resources.files("backtrail.agents.install").joinpath("opencode_plugin.js").read_text("utf-8")
    return source.replace(_COMMAND_MARK, json.dumps(command))


def _entry(program: Program, event: str, command: str) -> dict[str, Any]:
    hook: dict[str, Any] = {"type": "command", "command": command}
    if program.agent == "gemini":
        # It tells of a compression before each request, whether there will be one or not: only those that a person asks
        # for are worth the time.
        matcher = {"matcher": "manual"} if event == "PreCompress" else {}
        return {**matcher, "hooks": [{"name": "backtrail", **hook, "timeout": 1000 * SECONDS}]}
    short = program.agent == "codex" and event in ("SessionEnd", "Interrupt")
    most = 3 if short else SECONDS  # more is cut, with a warning
    return {"hooks": [{**hook, "timeout": most}]}


def _with_entry(text: str, program: Program, event: str, command: str) -> str:
    where = str(program.file)
    root = json_text.parse(text, where)
    if not root.is_object:
        raise InvalidInput(f"{where} does not hold an object: correct it first; nothing was changed")
    hooks = root.get("hooks")
    if hooks is None:
        return json_text.add_item(text, root, "hooks", {event: [_entry(program, event, command)]})
    if not hooks.is_object:
        raise InvalidInput(f"{where}: `hooks` is not an object: correct it first; nothing was changed")
    entries = hooks.get(event)
    if entries is None:
        return json_text.add_item(text, hooks, event, [_entry(program, event, command)])
    if entries.items is None or entries.is_object:
        raise InvalidInput(f"{where}: `hooks.{event}` is not a list: correct it first; nothing was changed")
    return json_text.add_item(text, entries, None, _entry(program, event, command))


def _our_hooks(root: Value, program: Program) -> list[tuple[str, tuple[int, int], str]]:
    """Our hooks: the event, the numbers of the entry and of the hook in it, and the command."""
    hooks = root.get("hooks")
    found = []
    for member in (hooks.items or ()) if hooks is not None and hooks.is_object else ():
        entries = member.value
        for number, entry in enumerate(entries.items or ()) if not entries.is_object else ():
            inner = entry.value.get("hooks")
            for position, hook in enumerate(inner.items or ()) if inner is not None and not inner.is_object else ():
                command = hook.value.get("command")
                if command is not None and is_our_command(command.value, program.agent):
                    found.append((member.key or "", (number, position), command.value))
    return found


class _Item(msgspec.Struct, frozen=True):
    """One item of an object or an array, by its number."""

    container: Value
    number: int

    @property
    def value(self) -> Value:
        return (self.container.items or [])[self.number].value

    @property
    def is_only(self) -> bool:
        return len(self.container.items or ()) == 1


def _item(container: Value, key: str) -> _Item:
    return _Item(container, [item.key for item in container.items or ()].index(key))


def _without(text: str, root: Value, event: str, number: int, position: int) -> str:
    """The text without one hook, and without the entry, the event and the `hooks` that are empty then."""
    hooks = _item(root, "hooks")
    entries = _item(hooks.value, event)
    entry = _Item(entries.value, number)
    hook = _Item(_item(entry.value, "hooks").value, position)
    target = hook
    if hook.is_only:  # an entry without hooks is of no use, whatever its matcher
        target = entry
        if entry.is_only:
            target = hooks if entries.is_only else entries
    return json_text.remove_item(text, target.container, target.number)


def read_text(path: Path) -> str | None:
    """The text of a file; None if there is none."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not text: correct it first; nothing was changed") from None


def _backup(path: Path) -> Path:
    real = path.resolve()
    return real.with_name(real.name + BACKUP)


def _replace(path: Path, text: str) -> None:
    """Put new contents in the place of a file, with the mode that it has."""
    mode = path.stat().st_mode & 0o777 if path.exists() else owned_files.FILE_MODE
    owned_files.require_regular(path)
    with owned_files.temporary_file(path) as fresh:
        handle = owned_files.create_exclusive(fresh)
        try:
            os.fchmod(handle, mode)
            owned_files.write_all(handle, text.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        fresh.rename(path)
    owned_files.sync_directory(path.parent)
