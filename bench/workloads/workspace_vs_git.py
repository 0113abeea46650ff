"""Workspaces against git: the same directory, the same edits, taking turns in one run.

git works in a shadow GIT_DIR of its own, once with its defaults (`add -A` and `commit`) and once tuned (manyFiles,
untrackedCache, `add -A` and `write-tree`, no commit). Every figure is a median; the ratio is backtrail's to that of the
contender named beside it. Edits, and cleaning up between turns, are not timed.

No contender pays for another's work: every turn begins with the disk at rest, git packs nothing in the background, and
nothing is deleted before the end, since a file system without a journal takes ten times as long to make a file for
minutes after many were deleted. For the same reason this workload comes last; let some minutes pass between two runs.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import backtrail
from bench.measure import Outcome, Target
from bench.run_context import RunContext

FILES, LARGE_FILES, LARGE_SIZE, DIRECTORIES, EDITS = 10_000, 20, 5 * 2**20, 300, 10
ORDER = ("backtrail", "git", "tuned")
LIMITS = (
    ("first snapshot", "first", "git", 0.25),
    ("nothing changed", "nothing", "tuned", 1.15),
    ("10 files changed", "ten", "git", 0.8),
    ("restore of 10 files", "restore", "git", 0.9),
    ("full restore", "full", "git", 0.5),
)


def make_tree(root: Path, files: int, large: int = LARGE_FILES, seed: int = 7) -> list[Path]:
    """Source-like files of 4 KB mean in nested directories, and some large ones, half of them incompressible."""
    dice = random.Random(seed)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz_", k=dice.randint(2, 11))) for _ in range(4000)]
    folders: list[Path] = []
    for number in range(max(1, DIRECTORIES * files // 10_000)):
        parent = dice.choice(folders) if folders and dice.random() < 0.7 else root
        folders.append(parent / f"{dice.choice(words)}{number}")
        folders[-1].mkdir(parents=True)
    paths = [dice.choice(folders) / f"{dice.choice(words)}_{number}.py" for number in range(files)]
    for path in paths:
        path.write_text(source(dice, words, max(80, int(dice.lognormvariate(7.9, 0.9)))))
    for number in range(large):
        half = dice.randbytes(LARGE_SIZE // 2)
        text = source(dice, words, LARGE_SIZE - len(half)).encode()
        (dice.choice(folders) / f"data{number}.bin").write_bytes(half + text)
    return paths


def source(dice: random.Random, words: list[str], size: int) -> str:
    """Text with indentation and repeated words."""
    lines: list[str] = []
    length = 0
    while length < size:
        lines.append(" " * (4 * dice.randint(0, 4)) + " ".join(dice.choices(words, k=dice.randint(2, 9))))
        length += len(lines[-1]) + 1
    return "\n".join(lines)[:size]


class GitRepository:
    """git with a GIT_DIR of its own beside the directory."""

    def __init__(self, root: Path, home: Path, tuned: bool) -> None:
        self.root, self.home, self.tuned = root, home, tuned
        self.env = {**os.environ, "GIT_DIR": str(home), "GIT_WORK_TREE": str(root), "GIT_CONFIG_GLOBAL": "/dev/null"}
        self.run("init", "-q")
        self.run("config", "user.email", "bench@example.org")
        self.run("config", "user.name", "bench")
        self.run("config", "gc.auto", "0")
        if tuned:
            self.run("config", "feature.manyFiles", "true")
            self.run("config", "core.untrackedCache", "true")

    def run(self, *words: str) -> str:
        done = subprocess.run(["git", *words], env=self.env, cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def snapshot(self) -> str:
        self.run("add", "-A")
        if self.tuned:
            return self.run("write-tree")
        self.run("commit", "-q", "--allow-empty", "-m", "snapshot")
        return self.run("rev-parse", "HEAD")

    def restore(self, at: str) -> None:
        self.run("checkout", "-q", "-f", at)

    def size(self) -> int:
        """The bytes that it occupies on the disk."""
        return sum(p.lstat().st_blocks * 512 for p in self.home.rglob("*"))


class BacktrailWorkspace:
    """A SQLite store beside the directory."""

    def __init__(self, root: Path, home: Path) -> None:
        self.home = home
        home.mkdir()
        self.store = backtrail.open(home / "files.db")
        self.workspace = self.store.workspace(root, cache=home / "cache")

    def snapshot(self) -> str:
        return self.workspace.snapshot().id

    def restore(self, at: str) -> None:
        self.workspace.restore(at)

    def size(self) -> int:
        """The bytes that it occupies on the disk, after a checkpoint of the write-ahead log."""
        with contextlib.closing(sqlite3.connect(self.home / "files.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return sum(p.lstat().st_blocks * 512 for p in self.home.glob("files.db*"))

    def close(self) -> None:
        self.store.close()


class Clock:
    """Collects, under names, elapsed seconds and processor seconds, child processes included."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self.work: dict[str, list[float]] = defaultdict(list)

    @contextlib.contextmanager
    def measure(self, name: str):  # type: ignore[no-untyped-def]  # a generator of nothing
        os.sync()
        start, worked = time.perf_counter(), sum(os.times()[:4])
        yield
        self.times[name].append(time.perf_counter() - start)
        self.work[name].append(sum(os.times()[:4]) - worked)

    def median(self, name: str) -> float:
        return statistics.median(self.times[name]) * 1000

    def mean_work(self, name: str) -> float:
        return statistics.mean(self.work[name]) * 1000  # a mean, because the system counts in steps of 10 ms


def edit(dice: random.Random, paths: list[Path]) -> dict[Path, bytes]:
    """Change some files, and return their content before."""
    chosen = dice.sample(paths, EDITS)
    before = {path: path.read_bytes() for path in chosen}
    for path in chosen:
        path.write_bytes(before[path] + b"\n# edit %d\n" % dice.randrange(10**9))
    return before


def run_round(
    clock: Clock, base: Path, root: Path, paths: list[Path], dice: random.Random, turn: int
) -> dict[str, float]:
    """One round: all operations for each contender, in an order that changes from round to round."""
    homes = base / f"round{turn}"
    homes.mkdir()
    contenders: dict[str, GitRepository | BacktrailWorkspace] = {}
    makers: list[tuple[str, Callable[[], GitRepository | BacktrailWorkspace]]] = [
        ("git", lambda: GitRepository(root, homes / "git", tuned=False)),
        ("tuned", lambda: GitRepository(root, homes / "tuned", tuned=True)),
        ("backtrail", lambda: BacktrailWorkspace(root, homes / "backtrail")),
    ]
    order = makers[turn % 3 :] + makers[: turn % 3]
    for name, make in order:
        contenders[name] = make()
        with clock.measure(f"first {name}"):
            contenders[name].snapshot()
    time.sleep(2.5)  # so that no timestamp is racy any more, for any of them
    for _ in range(2):
        for contender in contenders.values():
            contender.snapshot()
    for _ in range(5):
        for name, _ in order:
            with clock.measure(f"nothing {name}"):
                contenders[name].snapshot()

    start = {name: contenders[name].snapshot() for name in contenders}
    sizes = {name: contenders[name].size() for name in contenders}
    for _ in range(5):
        edit(dice, paths)
        for name, _ in order:
            with clock.measure(f"ten {name}"):
                contenders[name].snapshot()
    growth = {name: (contenders[name].size() - sizes[name]) / 5 for name in contenders}

    rivals = [item for item in order if item[0] != "tuned"]
    for _ in range(3):
        here = {name: contenders[name].snapshot() for name, _ in rivals}
        before = edit(dice, paths)
        after = {path: path.read_bytes() for path in before}
        for name, _ in rivals:
            contenders[name].snapshot()
        for name, _ in rivals:
            for path, data in after.items():
                path.write_bytes(data)
            with clock.measure(f"restore {name}"):
                contenders[name].restore(here[name])
            assert all(path.read_bytes() == data for path, data in before.items())
    del start

    here = {name: contenders[name].snapshot() for name, _ in rivals}
    for name, _ in rivals:
        aside = homes / f"before {name}"
        aside.mkdir()
        for item in root.iterdir():
            item.rename(aside / item.name)
        with clock.measure(f"full {name}"):
            contenders[name].restore(here[name])
        assert sum(path.exists() for path in paths) == len(paths)
    contenders["backtrail"].close()  # type: ignore[union-attr]  # the one that has to be closed
    return growth


def snapshot_tree(folder: Path, files: int) -> tuple[float, float]:
    """First and unchanged snapshot of a larger tree, in milliseconds."""
    root = folder / "tree"
    root.mkdir(parents=True)
    make_tree(root, files, large=0)
    workspace = BacktrailWorkspace(root, folder / "backtrail")
    clock = Clock()
    with clock.measure("first"):
        workspace.snapshot()
    time.sleep(2.5)
    workspace.snapshot()
    for _ in range(5):
        with clock.measure("nothing"):
            workspace.snapshot()
    workspace.close()
    return clock.median("first"), clock.median("nothing")


def run(context: RunContext) -> Outcome:
    clock, files = Clock(), context.scaled(FILES)
    growth: dict[str, list[float]] = defaultdict(list)
    with context.progress("files", context.rounds + 2) as bar, context.scratch() as scratch:
        base: Path = scratch.new_directory()
        root = base / "tree"
        root.mkdir()
        paths = make_tree(root, files)
        time.sleep(2.5)
        for turn in range(context.rounds):
            for name, value in run_round(clock, base, root, paths, random.Random(turn), turn).items():
                growth[name].append(value)
            bar.advance()
        trees = {}
        for size in (files, 10 * files):
            trees[size] = snapshot_tree(scratch.new_directory(), size)
            bar.advance()
    rows, targets = [], []
    for title, key, rival, goal in LIMITS:
        medians = [clock.median(f"{key} {name}") if clock.times[f"{key} {name}"] else None for name in ORDER]
        work = f"{clock.mean_work(f'{key} backtrail'):.0f} / {clock.mean_work(f'{key} {rival}'):.0f}"
        rows.append([title, *("-" if median is None else f"{median:.1f}" for median in medians), rival, work])
        ratio = clock.median(f"{key} backtrail") / clock.median(f"{key} {rival}")
        note = f"processor time, ms: {work}"
        targets.append(Target("files", f"{title}, against {rival}", ratio, goal, note=note))
    grown = [statistics.median(growth[name]) / 1024 for name in ORDER]
    rows.append(["growth per 10 changed, KB", *(f"{value:.1f}" for value in grown), "git", "-"])
    targets.append(Target("files", "growth per 10 changed, against git", grown[0] / grown[1], 1.0))
    for size, (first, nothing) in trees.items():
        rows.append([f"{size:,} small files: first, then unchanged", f"{first:.0f}", "-", "-", f"{nothing:.1f}", "-"])
    small, large = trees[files][1] / files, trees[10 * files][1] / (10 * files)
    note = "linear: taken as at most 1.5 x"
    targets.append(
        Target("files", f"unchanged, per file: {10 * files:,} against {files:,}", large / small, 1.5, note=note)
    )
    raw = {"seconds": clock.times, "work": clock.work, "growth": growth, "trees": list(trees.items())}
    columns = ["what, ms", *ORDER, "against", "processor ms"]
    note = f"{files:,} files in directories, {LARGE_FILES} of 5 MB; medians of {context.rounds} rounds"
    return Outcome("Files: a workspace beside git", columns, rows, targets, raw, note)
