"""The messages that `bench` stores: a workload in a process of its own must make the ones that its parent stored."""

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = "from bench.synthetic_messages import make_conversation; print(make_conversation(20))"


def test_the_messages_of_a_seed_are_the_same_in_every_process():
    made = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            check=True,
            capture_output=True,
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(made) == 1
