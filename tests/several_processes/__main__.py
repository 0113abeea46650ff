"""Many rounds by one command; what was found is kept, with its story, in a folder.

PYTHONPATH=tests python -m several_processes --rounds 1000
PYTHONPATH=tests python -m several_processes --pair sqlite+sqlite --mode sync --spool all --seconds 20 --seed 7.3
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from several_processes.plan import Setup
from several_processes.rounds import rounds_of

PAIRS = ("sqlite+sqlite", "redis+postgres", "postgres+sqlite", "jsonl+sqlite")


def main() -> int:
    parser = argparse.ArgumentParser(prog="several_processes", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--rounds", type=int, help="in all, spread over the configurations; default: 100; of one seed: 1"
    )
    parser.add_argument("--pair", choices=PAIRS, action="append", help="of engines; may be repeated; default: all")
    parser.add_argument("--mode", choices=("sync", "async"), help="default: both in turn")
    parser.add_argument("--api", choices=("blocking", "async", "mixed"), default="mixed")
    parser.add_argument("--spool", choices=("none", "all", "mixed"), help="default: all three in turn")
    parser.add_argument("--seconds", type=float, default=1.2, help="that the clients of a round work")
    parser.add_argument("--seed", default="7", help="of all rounds; or that of one round, as it was told")
    parser.add_argument("--folder", type=Path, help="for what is found; default: a new one in the temporary directory")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="several-processes-"))
    kinds: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    failed = played = 0
    begin = time.monotonic()
    pairs, one = given.pair or PAIRS, "." in given.seed
    wanted = given.rounds or (len(pairs) if one else 100)
    for number, pair in enumerate(pairs):
        share = wanted // len(pairs) + (number < wanted % len(pairs))
        modes = [given.mode] if given.mode else ["sync", "async"]
        spools = [given.spool] if given.spool else ["none", "mixed", "all"]
        setups = [(mode, spool) for spool in spools for mode in modes]
        primary, _, replica = pair.partition("+")
        first = Setup(primary=primary, replica=replica, api=given.api, seconds=given.seconds)
        with rounds_of(first, folder) as rounds:
            for n in range(share):
                mode, spool = setups[n % len(setups)]
                rounds.setup = Setup(
                    primary=primary,
                    replica=replica,
                    replication=mode,
                    api=given.api,
                    spool=spool,
                    seconds=given.seconds,
                )
                result = rounds.play(given.seed if one else f"{given.seed}.{n}")
                played += 1
                totals.update(result.counts)
                if result.findings:
                    failed += 1
                    found = Counter(finding.kind for finding in result.findings)
                    kinds.update(set(found))
                    options = (
                        f"--pair {pair} --mode {mode} --spool {spool} --seconds {given.seconds:g} --seed {result.seed}"
                    )
                    print(f"{options}: {dict(found)} {result.folder}/findings.txt", flush=True)
    spent = time.monotonic() - begin
    print(
        f"{played} rounds in {spent:.0f} s ({60 * played / spent:.1f} a minute), {failed} with findings: {dict(kinds)}"
    )
    print(f"operations: {dict(totals)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
