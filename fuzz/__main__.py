"""`python -m fuzz`: tries inputs until the time is over, and saves what went wrong.

Inputs are tried in child processes, one for each processor, because an input may hang or kill its process: then the
input is saved, and another child goes on with the next.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from backtrail.errors import BacktrailError
from fuzz.limits import SECONDS, TooMuch, allow_memory, limited
from fuzz.targets import TARGETS

HERE = Path(__file__).parent
CORPUS, FOUND = HERE / "corpus", HERE / "found"
_FORK = multiprocessing.get_context("fork")
_BATCH = 20  # inputs after which a child reports
_PATIENCE = 6 * SECONDS  # seconds without a word after which a child is stuck where no signal reaches it


def try_input(target: str, data: bytes) -> str | None:
    """Try one input; returns what is wrong, or None."""
    try:
        with limited():
            TARGETS[target].attempt(data)
    except BacktrailError:
        return None
    except TooMuch as error:
        return str(error)
    except MemoryError:
        return "it took more than 512 MB"
    except Exception:
        return traceback.format_exc(limit=-8)
    return None


def make_input(target: str, number: int) -> bytes:
    """The input with this number; the same one each time in this process and its children."""
    data: bytes = TARGETS[target].make(random.Random(f"{target} {number}"))
    return data


def corpus(target: str) -> list[Path]:
    """The inputs that were worth keeping."""
    folder = CORPUS / target
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _child(target: str, first: int, stride: int, reports: Connection) -> None:
    """Try every `stride`-th input from `first` on, until killed."""
    warnings.simplefilter("ignore")
    try_input(target, make_input(target, first))  # imports and caches come first: they do not count as memory
    allow_memory()
    number = first
    while True:
        for _ in range(_BATCH):
            reports.send(("trying", number, None))
            problem = try_input(target, make_input(target, number))
            if problem is not None:
                reports.send(("found", number, problem))
            number += stride


class _Worker:
    """One child process, and what it said last."""

    def __init__(self, target: str, first: int, stride: int) -> None:
        self.target, self.stride = target, stride
        self.number = first
        self._start(first)

    def _start(self, first: int) -> None:
        self.heard = time.monotonic()
        self._reports, theirs = multiprocessing.Pipe(duplex=False)
        self._process = _FORK.Process(target=_child, args=(self.target, first, self.stride, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def listen(self) -> list[tuple[int, str]]:
        """What the child found since the last call; a child that died or hangs is replaced."""
        found: list[tuple[int, str]] = []
        try:
            while self._reports.poll():
                kind, self.number, problem = self._reports.recv()
                self.heard = time.monotonic()
                if kind == "found":
                    found.append((self.number, problem))
        except (EOFError, OSError):
            found.append((self.number, f"it ended the process (exit code {self._process.exitcode})"))
            self.replace()
        if time.monotonic() - self.heard > _PATIENCE:
            found.append((self.number, f"it hung for {_PATIENCE:g} seconds, and no signal reached it"))
            self.replace()
        return found

    def replace(self) -> None:
        self.stop()
        self._start(self.number + self.stride)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._reports.close()


def fuzz(targets: list[str], seconds: float, first: int) -> int:
    """Try inputs of the targets in turn, each for its share of the time. Returns the number of findings."""
    total = 0
    for target in targets:
        for path in corpus(target):
            if problem := try_input(target, path.read_bytes()):
                total += 1
                print(f"{target}: the kept input {path.name}: {problem}")
        make_input(target, first)  # the store that inputs are made from: children inherit it, and so make the same ones
        width = os.cpu_count() or 1
        workers = [_Worker(target, first + i, width) for i in range(width)]
        kinds: Counter[str] = Counter()
        end = time.monotonic() + seconds / len(targets)
        while time.monotonic() < end:
            time.sleep(0.2)
            for worker in workers:
                for number, problem in worker.listen():
                    last = problem.strip().splitlines()[-1]
                    kinds[last] += 1
                    if kinds[last] <= 3:
                        _save(target, number, problem)
            tried = sum((worker.number - first) // width for worker in workers)
            print(f"\r{target}: {tried:,} inputs, {sum(kinds.values()):,} findings", end="", flush=True)
        for worker in workers:
            worker.stop()
        print()
        total += sum(kinds.values())
    return total


def _save(target: str, number: int, problem: str) -> None:
    data = make_input(target, number)
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    print(f"\n{target}: input {number}, kept as {path}:\n{problem}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description="Hostile input in large numbers.")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long, in the whole (default 5)")
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), help="some targets only")
    parser.add_argument("--first", type=int, default=None, help="the number of the first input (default: by the clock)")
    parser.add_argument("--input", type=int, help="try this one input of the one target, in this process")
    parser.add_argument("--file", type=Path, help="try this saved input of the one target, in this process")
    options = parser.parse_args()
    if options.input is not None or options.file is not None:
        (target,) = options.only
        data = options.file.read_bytes() if options.file else make_input(target, options.input)
        problem = try_input(target, data)
        print(problem or "nothing is wrong")
        return int(problem is not None)
    first = int(time.time()) * 1000 if options.first is None else options.first
    found = fuzz(options.only, options.minutes * 60, first)
    print(f"{found} findings" if found else "nothing found")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
