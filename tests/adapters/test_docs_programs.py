"""The programs in docs/adapters.md run unchanged, each in a directory and a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_page_has_a_program_for_each_framework() -> None:
    for name in ("langgraph", "openai_agents", "claude", "adk", "pydantic_ai"):
        assert any(f"backtrail.adapters.{name}" in program for program in PROGRAMS)


@pytest.mark.parametrize(
    "program", PROGRAMS, ids=[re.findall(r"backtrail\.adapters\.(\w+)", one)[0] for one in PROGRAMS]
)
def test_each_program_runs_offline(program: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
