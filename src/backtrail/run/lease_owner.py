"""The owner of a run's lease: a readable name, from which another process can see if the owner has died.

The lease of a killed process lasts until it expires. Another process of the same machine can see that the owner is gone
and need not wait: the name holds the machine, the process id, and the time at which that process was started.
"""

from __future__ import annotations

import os
import platform
import re
import uuid
from functools import cache
from pathlib import Path

_OWNER = re.compile(r"(?P<machine>.+) pid (?P<pid>\d+) started (?P<start>\d+) \[[0-9a-f]{8}\]")


def new_owner() -> str:
    """The name of a new owner in this process."""
    return f"{_machine()} pid {os.getpid()} started {_started(os.getpid()) or 0} [{uuid.uuid4().hex[:8]}]"


def is_gone(owner: str) -> bool:
    """True if the owner's process has certainly ended. False for every process of another machine."""
    found = _OWNER.fullmatch(owner)
    if found is None or found["machine"] != _machine() or found["start"] == "0":
        return False
    return _started(int(found["pid"])) != int(found["start"])


def _machine() -> str:
    """This machine, and the pid namespace in it, outside of which process ids mean nothing. Machines may share a name,
    and the numbers of their namespaces, but not the id that the kernel draws when it boots."""
    try:
        return f"{platform.node()} ({Path('/proc/self/ns/pid').readlink()} boot {_boot()})"
    except OSError:
        return platform.node()


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]


def _started(pid: int) -> int | None:
    """The start time of a process in clock ticks; None if there is no such process, or the system does not report
    it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()  # the name before it may contain anything
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
