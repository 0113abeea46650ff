"""Exclusions from a snapshot: version control, coding agents' own directories, the store itself, a restore's staging
directory, and ignored files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator

import msgspec

from backtrail.errors import FilesError
from backtrail.workspace.descent import GONE, Descent
from backtrail.workspace.ignore_files import IGNORE_FILES, Rules
from backtrail.workspace.model import Limits
from backtrail.workspace.paths import folder_of, is_off_limits, is_version_control

STAGING_PREFIX = b".backtrail-restore-"  # of a restore's staging directory, followed by a token of 32 hex digits
MAX_IGNORE_FILE = 2**20  # bytes that are read of one ignore file

VERSION_CONTROL, OWN, STAGING = "version control", "the store itself", "a restore at work"
AGENTS_OWN = "a coding agent's own directory"
NEVER_INCLUDED = frozenset({VERSION_CONTROL, AGENTS_OWN, OWN, STAGING})  # reasons that hold whatever the rules say
IGNORED = "ignored by rule"

_STAGING_NAME = re.compile(re.escape(STAGING_PREFIX) + rb"[0-9a-f]{32}")


class ScanRoot(msgspec.Struct, frozen=True):
    """A directory, and the rules by which it is scanned."""

    path: bytes  #: absolute, without symlinks
    store_paths: tuple[bytes, ...] = ()  #: files and directories of the store itself, absolute
    limits: Limits = Limits()
    unreadable: str = "raise"  #: or "flag"

    @property
    def cache_key(self) -> bytes:
        """All that an index depends on besides the files in the directory."""
        return msgspec.msgpack.encode((self.path, self.store_paths, self.limits.file_bytes))


def own_paths(scan_root: ScanRoot) -> Callable[[bytes], bool]:
    """Tells of a path, from the root, if it is of the store itself, also if there is nothing there now."""
    root = scan_root.path + b"/"
    if any(root.startswith((own + b"/", own + b"-")) for own in scan_root.store_paths):
        return lambda path: True  # noqa: ARG005  # the root is in the store's own directory
    inside = {own.removeprefix(root) for own in scan_root.store_paths if own.startswith(root)}
    beginnings = tuple(name + end for name in inside for end in (b"/", b"-"))
    return lambda path: path in inside or path.startswith(beginnings)


class Exclusions:
    """The exclusions of one directory during one walk."""

    def __init__(self, scan_root: ScanRoot, descent: Descent) -> None:
        self._scan_root = scan_root
        self._descent = descent
        self._rules: dict[bytes, Rules] = {}

    def in_folder(self, folder: bytes) -> FolderExclusions:
        """The exclusions among the items of a folder."""
        above = b"%b/%b" % (self._scan_root.path, folder)
        store_paths = self._scan_root.store_paths
        store_names = tuple(path.removeprefix(above) for path in store_paths if folder_of(path) == above)
        return FolderExclusions(folder, self._rules_in(folder), store_names)

    def _rules_in(self, folder: bytes) -> Rules:
        """The ignore rules in a folder, read from the directory on first use."""
        rules = self._rules.get(folder)
        if rules is None:
            above = self._rules_in(folder_of(folder)) if folder else Rules()
            rules = self._rules[folder] = above.below(folder, self._ignore_files(folder))
        return rules

    def _ignore_files(self, folder: bytes) -> Iterator[bytes]:
        for name in IGNORE_FILES:
            try:
                handle = self._descent.open_file(folder + name)
            except OSError as error:
                if error.errno in GONE:  # none, or a link: git does not follow it either
                    continue
                raise unreadable_error(b"%b/%b" % (self._scan_root.path, folder + name), error) from error
            with os.fdopen(handle, "rb") as file:
                if stat.S_ISREG(os.fstat(handle).st_mode):
                    yield file.read(MAX_IGNORE_FILE)


class FolderExclusions:
    """The exclusions among the items of one folder."""

    __slots__ = ("_folder", "_rules", "_store_names")

    def __init__(self, folder: bytes, rules: Rules, store_names: tuple[bytes, ...]) -> None:
        self._folder = folder
        self._rules = rules if rules.groups or rules.parent else None
        self._store_names = store_names

    def reason(self, name: bytes, is_dir: bool) -> str | None:
        """The reason why an item is left out; None if it is included."""
        if is_off_limits(name):
            return VERSION_CONTROL if is_version_control(name) else AGENTS_OWN
        for own in self._store_names:
            if name == own or name.startswith(own + b"-"):  # with its -wal, -shm, -lock, …
                return OWN
        if is_dir and not self._folder and is_staging(name):
            return STAGING
        if self._rules is not None and self._rules.ignores(self._folder + name, is_dir):
            return IGNORED
        return None


def is_staging(name: bytes) -> bool:
    """True if a directory in the root is the staging directory of a restore."""
    return _STAGING_NAME.fullmatch(name) is not None


def unreadable_error(path: bytes, error: OSError) -> FilesError:
    return FilesError(
        path,
        f"it cannot be read ({error.strerror}): let backtrail read it, name it in .backtrailignore, "
        "or open the workspace with unreadable='flag' to go on without it",
    )
