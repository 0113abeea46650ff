"""What an editor and a type checker know of the front doors, without a word from the user."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import dataclasses
import backtrail, backtrail.aio

@dataclasses.dataclass
class Plan:
    goal: str

store = backtrail.open("agents.db", compression="zstd", durability="normal", types=[Plan], pool_size=3)
reveal_type(store)
reveal_type(store.thread("t").load())
reveal_type(store.thread("t", type=Plan).load())
reveal_type(store.thread("t").load(as_=Plan))
reveal_type(store.thread("t").save({}, label="x", tags=["a"]))
reveal_type(store.thread("t").history(limit=3))
reveal_type(store.session("s").messages(last=3))
store.thread("t").load(at=1.5)
store.thread("t").history(limt=3)

async def main() -> None:
    async with await backtrail.aio.open("agents.db") as store:
        reveal_type(await store.thread("t").load())
        reveal_type(await store.threads())
        async for checkpoint in store.thread("t", Plan).history():
            reveal_type(checkpoint)
"""
KNOWN = [
    "Store",
    "dict[str, Any]",
    "Plan",
    "Plan",
    "Checkpoint",
    "list[Checkpoint]",
    "list[dict[str, Any]]",
    "dict[str, Any]",
    "list[ThreadInfo]",
    "Checkpoint",
]


def test_the_doors_tell_what_they_give_and_what_they_take(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    revealed = re.findall(r'Revealed type is "(.+)"', ended.stdout)
    assert [re.sub(r"(?:\w+\.)+(?=\w)", "", kind) for kind in revealed] == KNOWN, ended.stdout + ended.stderr
    errors = re.findall(r"program\.py:\d+: error: (.+?)  ", ended.stdout)
    assert len(errors) == 2, ended.stdout
    assert 'No overload variant of "load" of "Thread"' in errors[0]
    assert 'Unexpected keyword argument "limt"' in errors[1]
