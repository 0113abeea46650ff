"""Thousands of kills by one command; exits with 1 if a promise was broken, and tells which.

PYTHONPATH=tests python -m run_kills --kills 2000
PYTHONPATH=tests python -m run_kills --kills 100 --engine postgres --api async --seed 7
PYTHONPATH=tests python -m run_kills --kills 400 --workers --elsewhere
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from run_kills.rounds import Rounds
from run_kills.stores import ENGINES, server_of, store_in

APIS = ("sync", "async")


def main() -> int:
    parser = argparse.ArgumentParser(prog="run_kills", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=2000, help="in all, spread over engines and APIs; default: 2000")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="may be repeated; default: all")
    parser.add_argument("--api", choices=APIS, action="append", help="may be repeated; default: both")
    parser.add_argument("--workers", action="store_true", help="kill workers (store.work) instead of single runs")
    parser.add_argument("--elsewhere", action="store_true", help="workers do not know who is dead: leases have to end")
    parser.add_argument("--seed", default="1")
    given = parser.parse_args()
    engines, apis = given.engine or ENGINES, given.api or APIS
    share = -(-given.kills // (len(engines) * len(apis)))
    failed = total = 0
    for engine in engines:
        with server_of(engine) as server, tempfile.TemporaryDirectory(prefix="run-kills-") as directory:
            for api in apis:
                folder = Path(directory) / api
                folder.mkdir()
                url, options = store_in(engine, folder, server)
                begin = time.monotonic()
                rounds = Rounds(url, options, api, folder, f"{given.seed} {engine} {api}")
                if not given.workers:
                    rounds.play(share)
                else:
                    rounds.work(share, elsewhere=given.elsewhere)
                counts = ", ".join(f"{name} {count}" for name, count in rounds.counts.items())
                print(f"{engine} {api}: {counts}; {time.monotonic() - begin:.0f} s", flush=True)
                for one in rounds.findings:
                    print(f"  {one}", flush=True)
                failed += len(rounds.findings)
                total += rounds.counts["kills"] + rounds.counts["workers killed"]
    print(f"{total} kills, {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
