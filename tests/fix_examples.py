"""The programs in examples/: each says in its docstring what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
FRAMEWORKS = [path for path in EXAMPLES if "backtrail.adapters" in path.read_text()]
SHOWS = [path for path in EXAMPLES if path.stem not in ("demo", "msgpack_engine")]  # one prints figures, one nothing


def promised(program: Path) -> str:
    """What the docstring says that a program prints."""
    found = re.search(r"It prints:\n\n((?:    .*\n)+)\"\"\"", program.read_text())
    assert found is not None, f"{program.name} does not say what it prints"
    return re.sub("^    ", "", found[1], flags=re.MULTILINE)


def run_offline(program: Path, directory: Path) -> str:
    """Run a program in a directory and give what it prints; a proxy that nobody serves keeps it from a network."""
    nobody = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    environment = {**os.environ, **nobody, "no_proxy": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(program)], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
