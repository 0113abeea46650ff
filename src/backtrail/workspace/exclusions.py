"""Why a name is left out: version control's own, the store's own, a restore at work, or a rule of an ignore file."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator

import msgspec

from backtrail.errors import FilesError
from backtrail.workspace.ignore import IGNORE_FILES, Rules
from backtrail.workspace.model import Limits
from backtrail.workspace.trees import is_control

STAGING = re.compile(rb"\.backtrail-restore-[0-9a-f]{32}")
MAX_RULES = 2**20  # bytes of one ignore file


class ScanRoot(msgspec.Struct, frozen=True):
    """Which directory, and by which rules it is looked at."""

    root: bytes  #: absolute, without symlinks
    own: tuple[bytes, ...] = ()  #: files and directories of the store itself, absolute
    limits: Limits = Limits()
    unreadable: str = "raise"  #: or "flag"

    @property
    def key(self) -> bytes:
        """What an index depends on besides the directory."""
        return msgspec.msgpack.encode((self.root, self.own, self.limits.file_bytes))


class Exclusions:
    """Knows the rules of one directory, as they are during one walk."""

    def __init__(self, place: ScanRoot) -> None:
        self._place = place
        self._rules: dict[bytes, Rules] = {}

    def inside(self, folder: bytes) -> FolderExclusions:
        """The rules for the items of a folder, by its path from the root, ending in a slash."""
        above = b"%b/%b" % (self._place.root, folder)
        own = tuple(path.removeprefix(above) for path in self._place.own if path.rpartition(b"/")[0] + b"/" == above)
        return FolderExclusions(folder, self._rules_in(folder), own)

    def _rules_in(self, path: bytes) -> Rules:
        """The rules in a folder, read from the directory on the first question."""
        rules = self._rules.get(path)
        if rules is None:
            above = self._rules_in(path[: path[:-1].rfind(b"/") + 1]) if path else Rules()
            rules = self._rules[path] = above.below(path, self._ignore_files(path))
        return rules

    def _ignore_files(self, path: bytes) -> Iterator[bytes]:
        for name in IGNORE_FILES:
            full = self._place.root + b"/" + path + name
            try:
                handle = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if error.errno == errno.ELOOP:  # a link: git does not follow it either
                    continue
                raise unreadable(full, error) from error
            with os.fdopen(handle, "rb") as file:
                if stat.S_ISREG(os.fstat(handle).st_mode):
                    yield file.read(MAX_RULES)


class FolderExclusions:
    """What is left out in one folder."""

    __slots__ = ("_folder", "_own", "_rules")

    def __init__(self, folder: bytes, rules: Rules, own: tuple[bytes, ...]) -> None:
        self._folder = folder
        self._rules = rules if rules.groups or rules.parent else None
        self._own = own

    def reason(self, name: bytes, is_dir: bool) -> str | None:
        """Why the item of that name is left out, if it is."""
        if is_control(name):
            return "version control"
        for own in self._own:
            if name == own or name.startswith(own + b"-"):  # with its -wal, -shm, -lock, …
                return "the store itself"
        if is_dir and not self._folder and STAGING.fullmatch(name):
            return "a restore at work"
        if self._rules is not None and self._rules.ignores(self._folder + name, is_dir):
            return "ignored by rule"
        return None


def unreadable(path: bytes, error: OSError) -> FilesError:
    return FilesError(
        path,
        f"it cannot be read ({error.strerror}): let backtrail read it, name it in .backtrailignore, "
        "or open the workspace with unreadable='flag' to go on without it",
    )
