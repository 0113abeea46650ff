"""`backtrail hook`, killed just before one of its calls that reach the disk: `doomed_hook.py ORDER hook AGENT`.

ORDER is a file with a number: so many calls on files in hidden folders of a directory `home` (backtrail's store, log,
locks and caches) are let pass, and the next one is the end, by SIGKILL. Without the file, or without a number in it,
the hook is an ordinary one. The process must have been started with the shim of `fix_faulty_disk`, which sees what
SQLite does as well.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fix_faulty_disk import KILL, Calls, Faults

CALLS = Calls.OPEN | Calls.WRITE | Calls.SYNC | Calls.TRUNCATE | Calls.RENAME


def main() -> None:
    """Arm the shim, and become the hook."""
    order = Path(sys.argv.pop(1))
    text = order.read_text().strip() if order.exists() else ""
    if text:
        Faults().arm(CALLS, "/home/.", KILL, skip=int(text))
    from backtrail.cli.entry import main as run

    run()


if __name__ == "__main__":
    main()
