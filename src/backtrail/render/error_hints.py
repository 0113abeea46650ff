"""Replaces the advice in an error message, written for Python callers, by the command that does the same.

Each key occurs word for word in a message of the library; a test checks that.
"""

from __future__ import annotations

_COMMANDS = {
    "save to it first, or list threads with store.threads()": "`backtrail threads` lists those that there are",
    "list them with thread.history(all=True)": "`backtrail log` lists them",
    "run store.verify() to see what else is": "run `backtrail verify` to see what else is",
    "open it with key=…": "put its key into BACKTRAIL_KEY",
    "open it without, and copy it into a new store that has one with store.copy_to(url, key=…)": (
        "unset BACKTRAIL_KEY, and copy it into a new store that has one with `backtrail copy TARGET --key FILE`"
    ),
    "copy it into one that is with store.copy_to(url, key=…)": (
        "copy it into one that is with `backtrail copy TARGET --key FILE`"
    ),
    "copy one into the other with store.copy_to()": "copy one into the other with `backtrail copy`",
    "make one with secrets.token_bytes(32), and give it as bytes, as 64 hexadecimal digits or in base64": (
        "make one with `openssl rand -hex 32`, and give it in hex or base64"
    ),
    "only one that was saved with files=workspace has": "`backtrail log` shows which have",
    "load() gives its state": "`backtrail export --format json` writes its state",
    "thread.workspace(at, root=DIRECTORY) or store.workspace(DIRECTORY, name)": "--root DIRECTORY",
}


def with_cli_hints(message: str) -> str:
    """The message with commands in place of Python calls."""
    for python_hint, command_hint in _COMMANDS.items():
        message = message.replace(python_hint, command_hint)
    return message
