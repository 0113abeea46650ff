"""Somebody put something else in the place of a file of ours: a link to a victim, a FIFO, a directory, a second name.

The files are not listed here: a shim under the C library notes everything that the exercises create, so that a new file
is tried without a change to this test. A name is tried with every obstacle in the first exercise that makes it; all
other places are tried with one each, as `slow`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backtrail.errors import BacktrailError
from fix_children import Child
from fix_faulty_disk import created, in_shim
from fix_own_files import EXERCISES, at_home

HANGS = 20  # seconds: no exercise takes a tenth of it
USERS = ("project/",)  # files in the workspace are the user's own

pytestmark = pytest.mark.linux


def survey(base: str) -> None:
    """Print, for each exercise, the paths that it creates under the same name each time."""
    found: dict[str, list[str]] = {}
    for name in EXERCISES:
        runs = [_created(Path(base), name) for _ in range(2)]
        found[name] = sorted(path for path in runs[0] & runs[1] if not path.startswith(USERS))
        for path in runs[0] ^ runs[1]:
            assert Path(path).name.startswith((".backtrail-", "etilqs_")) or path.startswith(USERS), path
    print("\n" + json.dumps(found))


def _created(base: Path, name: str) -> set[str]:
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    at_home(base)
    EXERCISES[name].prepare(base)
    found = created(lambda: EXERCISES[name].work(base))
    return {path.removeprefix(f"{base}/") for path in found if path.startswith(f"{base}/")}


Case = tuple[str, str]  # an exercise and a path


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    memory = "/dev/shm"  # thousands of fsyncs, about which this test is not
    with tempfile.TemporaryDirectory(dir=memory if Path(memory).is_dir() else None) as name:
        yield Path(name).resolve() / "base"


@pytest.fixture(scope="module")
def cases(base: Path) -> tuple[list[Case], list[Case]]:
    """The first exercise that makes each name, and all other places."""
    found: dict[str, list[str]] = json.loads(in_shim(survey, str(base)).splitlines()[-1])
    tried: set[str] = set()
    first, others = [], []
    for name, paths in found.items():
        for path in paths:
            (others if Path(path).name in tried else first).append((name, path))
        tried |= {Path(path).name for path in paths}
    return first, others


def test_the_survey_finds_the_files_that_everybody_knows(cases: tuple[list[Case], list[Case]]) -> None:
    names = {Path(path).name for _, path in cases[0]}
    assert names >= {
        *("store.db", "store.db-wal", "store.db-shm", "store.db-lock", "store.db-lock-next"),
        *("store", ".lock", ".lock-next", ".names", ".index", "backtrail.json", "leases.json", "t.jsonl"),
        *("t.jsonl.damaged", "spool", "spool.db", "s.md", "s.json", ".cache"),
    }


# -- obstacles -------------------------------------------------------------------------------------------------------


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def dangling_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("made"))


def fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, victim: Path) -> None:
    path.mkdir()


def hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


Plant = Callable[[Path, Path], None]
OBSTACLES = [link, dangling_link, fifo, directory, hard_link]


@pytest.mark.parametrize("plant", OBSTACLES)
def test_nothing_is_followed_overwritten_or_waited_for(
    plant: Plant, cases: tuple[list[Case], list[Case]], base: Path
) -> None:
    check_all(plant, cases[0], base)


@pytest.mark.slow
@pytest.mark.parametrize("plant", OBSTACLES)
def test_nothing_is_followed_overwritten_or_waited_for_anywhere(
    plant: Plant, cases: tuple[list[Case], list[Case]], base: Path
) -> None:
    check_all(plant, cases[1][OBSTACLES.index(plant) :: len(OBSTACLES)], base)


def check_all(plant: Plant, cases: list[Case], base: Path) -> None:
    wrong = [f"{name}: {path}: {what}" for name, path in cases if (what := check(plant, name, path, base))]
    assert not wrong, "\n".join(wrong)


def check(plant: Plant, name: str, path: str, base: Path) -> str | None:
    """What is wrong, or None."""
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    EXERCISES[name].prepare(base)
    victims = base.with_name("victims")
    shutil.rmtree(victims, ignore_errors=True)
    victims.mkdir()
    victim = victims / "victim"
    victim.write_bytes(b"precious")
    place = base / path
    for parent in reversed(place.relative_to(base).parents):
        (base / parent).mkdir(exist_ok=True)
    if place.exists():
        place.unlink()  # a lock file, from the preparation
    plant(place, victim)
    planted = place.lstat()
    ended = work(name, base)
    if ended not in ("done", "refused"):
        return ended
    if victim.read_bytes() != b"precious" or victim.stat().st_mode != 0o100644 & ~umask():
        return "the victim was changed"
    if [file.name for file in victims.iterdir()] != ["victim"]:
        return "something was made elsewhere"
    found = place.lstat()
    if plant is directory and stat.S_ISDIR(found.st_mode):
        shutil.rmtree(place)
    elif plant is hard_link and found.st_ino != planted.st_ino:
        pass  # the name has a file of its own now, and the victim has kept its own
    elif (found.st_mode, found.st_ino) != (planted.st_mode, planted.st_ino):
        return "the obstacle was replaced"
    else:
        place.unlink()
    again = work(name, base)
    return None if again == "done" else f"without the obstacle: {again}"


def umask() -> int:
    os.umask(found := os.umask(0))
    return found


def work(name: str, base: Path, mask: int | None = None) -> str:
    """Do an exercise in a child, which dies if it hangs: "done", "refused", or what went wrong."""

    def exercise(send: Callable[[bytes], None]) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANGS)
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        at_home(base)
        if mask is not None:
            os.umask(mask)
        try:
            EXERCISES[name].work(base)
            send(b"done")
        except BacktrailError:
            send(b"refused")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            send(repr(error).encode())

    status, sent = Child(exercise).end()
    return "it hung" if status == -signal.SIGALRM else sent.decode()


# -- modes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o777], ids=oct)
def test_everything_is_for_its_owner_only_whatever_the_umask(mask: int, base: Path) -> None:
    for name, exercise in EXERCISES.items():
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir()
        exercise.prepare(base)
        mine = set(base.rglob("*"))
        assert work(name, base, mask) == "done", name
        modes = {
            str(path.relative_to(base)): stat.S_IMODE(path.stat().st_mode)
            for path in set(base.rglob("*")) - mine
            if not str(path.relative_to(base)).startswith(USERS)
        }
        wrong = {
            path: oct(mode) for path, mode in modes.items() if mode != (0o700 if (base / path).is_dir() else 0o600)
        }
        assert not wrong, f"{name}: {wrong}"
