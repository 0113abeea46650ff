"""Disks that fail when they are told to: `faulty_libc.c`, compiled and loaded into a fresh Python with LD_PRELOAD.

`in_shim(function, …)` runs a function of a test module in such a process; there, `Faults` chooses the calls that fail,
and `created()` notes every file that is created.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntFlag
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
PATIENCE = 600  # seconds
KILL = -1  #: in the place of an error number: the process ends by SIGKILL


class Calls(IntFlag):
    """Calls of the C library, by what they do; the same numbers as in `faulty_libc.c`."""

    OPEN = 1
    READ = 2
    WRITE = 4
    SYNC = 8
    TRUNCATE = 16
    RENAME = 32


@functools.cache
def library() -> Path:
    """The shim, compiled."""
    out = Path(tempfile.mkdtemp(prefix="backtrail-faults-")) / "faulty_libc.so"
    source = TESTS / "faulty_libc.c"
    subprocess.run(["gcc", "-Wall", "-Wextra", "-O1", "-shared", "-fPIC", "-o", out, source, "-ldl"], check=True)
    return out


def in_shim(function: Callable[..., None], *args: str) -> str:
    """Run a module-level function with these arguments in a process with the shim; what it printed."""
    here = sys.modules[function.__module__]
    assert here.__file__ is not None
    folders = [str(TESTS), str(Path(here.__file__).parent)]
    code = "import sys, fix_faulty_disk; fix_faulty_disk.enter(*sys.argv[1:])"
    module = Path(here.__file__).stem
    ran = subprocess.run(
        [sys.executable, "-c", code, module, function.__name__, *args],
        env={**os.environ, "LD_PRELOAD": str(library()), "PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, f"{function.__name__}{args} ended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def enter(module: str, function: str, *args: str) -> None:
    """The beginning of the process that `in_shim` starts."""
    getattr(importlib.import_module(module), function)(*args)


class Faults:
    """Faults in this process, which must have the shim."""

    def __init__(self) -> None:
        self._c: Any = ctypes.CDLL(None)
        self._c.faults_arm.argtypes = [ctypes.c_int, ctypes.c_char_p, *[ctypes.c_int] * 2, *[ctypes.c_long] * 2]
        self._c.faults_disarm.restype = ctypes.c_long
        self.seen = 0  #: matching calls during the last fault

    def arm(
        self, calls: Calls, part: str, error: int, *, short: bool = False, skip: int = 0, times: int = 1 << 40
    ) -> None:
        """The same as `on`, for good, and for processes that this one forks."""
        self._c.faults_arm(int(calls), os.fsencode(part), error, short, skip, times)

    @contextmanager
    def on(
        self,
        calls: Calls,
        part: str,
        error: int = errno.EIO,
        *,
        short: bool = False,
        skip: int = 0,
        times: int = 1 << 40,
    ) -> Iterator[None]:
        """Inside the block, calls on paths that contain `part` fail: after `skip` of them, for `times` calls."""
        self.arm(calls, part, error, short=short, skip=skip, times=times)
        try:
            yield
        finally:
            self.seen = self._c.faults_disarm()


def created(work: Callable[[], None]) -> set[str]:
    """The paths of everything that `work` creates or renames to, also for a moment, as they were given."""
    log = os.memfd_create("created")
    library = ctypes.CDLL(None)
    library.faults_log(log)
    try:
        work()
    finally:
        library.faults_log(-1)
    size = os.fstat(log).st_size
    return set(os.fsdecode(os.pread(log, size, 0)).splitlines())
