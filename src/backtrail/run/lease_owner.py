"""Who holds a run: a name that a person can read, and that tells whether the process behind it is gone.

A lease outlives a process that was killed by as long as it had left. Whoever comes next on the same machine can see
that the process is gone, and need not wait: the name carries the machine, the process, and when that was started.
"""

from __future__ import annotations

import os
import platform
import re
import uuid
from pathlib import Path

_NAME = re.compile(r"(?P<place>.+) pid (?P<pid>\d+) started (?P<start>\d+) \[[0-9a-f]{8}\]")


def new_holder() -> str:
    """The name of one holder in this process."""
    return f"{_place()} pid {os.getpid()} started {_started(os.getpid()) or 0} [{uuid.uuid4().hex[:8]}]"


def is_gone(holder: str) -> bool:
    """Whether the process behind a name has certainly ended. Of other machines nothing is known."""
    found = _NAME.fullmatch(holder)
    if found is None or found["place"] != _place() or found["start"] == "0":
        return False
    return _started(int(found["pid"])) != int(found["start"])


def _place() -> str:
    """This machine, and on it the space in which process numbers mean something."""
    try:
        return f"{platform.node()} ({Path('/proc/self/ns/pid').readlink()})"
    except OSError:
        return platform.node()


def _started(pid: int) -> int | None:
    """When a process was started, in the system's own ticks; None if there is none, or the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()  # the name before it may contain anything
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
