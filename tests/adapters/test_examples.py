"""Each program in examples/ that uses a framework runs by itself, offline, and prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fix_examples import FRAMEWORKS, promised, run_offline


@pytest.mark.slow
@pytest.mark.parametrize("program", FRAMEWORKS, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(program: Path, tmp_path: Path) -> None:
    assert run_offline(program, tmp_path) == promised(program)
    assert list(tmp_path.iterdir()) == []
