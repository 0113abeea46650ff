"""Without its framework, an adapter names the extra that installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

ADAPTERS = [
    ("langgraph", "langgraph.checkpoint.base", "langgraph"),
    ("openai_agents", "agents", "openai-agents"),
    ("claude", "claude_agent_sdk", "claude"),
    ("adk", "google.adk", "adk"),
    ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
]


@pytest.mark.parametrize(("adapter", "framework", "extra"), ADAPTERS, ids=[one[0] for one in ADAPTERS])
def test_a_missing_framework_is_named_by_its_extra(adapter: str, framework: str, extra: str) -> None:
    program = f"import sys; sys.modules[{framework!r}] = None; import backtrail.adapters.{adapter}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"MissingExtra: backtrail's adapter for {extra} " in done.stderr
    assert f'pip install "backtrail[{extra}]"' in done.stderr
