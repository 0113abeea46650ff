"""`python -m simulate`: plays seeds and counts what goes wrong; or plays one of them, makes it small, and tells it.

    make simulate SEEDS=1000 START=0        the seeds 0 to 999
    make simulate SEED=14                   one seed: shrunk if it fails, and told
    make simulate SEED=14 KEEP=o0,o3,f1     only these of its operations and faults, told

Sets and dicts of text are in the same order each time only if Python's hashes are: so it runs with PYTHONHASHSEED=0.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings

import msgspec

from .checker import Failure
from .plan import Plan
from .runs import Chosen, play, play_seeds
from .shrink import shrink
from .story import Story, told_plan
from .world import World


def tell(plan: Plan, reads: bool) -> list[Failure]:
    """Play a plan, and print its story."""
    world = World(plan, story := Story(reads=reads))
    failures = world.play()
    print(told_plan(plan), story.text(world.ledger), sep="\n")
    for failure in failures:
        print(f"-> {failure}")
    return failures


def replay_command(plan: Plan, chosen: Chosen) -> str:
    """The command that plays a plan again."""
    parts = [f"make simulate SEED={plan.seed} KEEP={','.join(plan.names()) or 'none'}"]
    args = [f"--noise {plan.noise}"] if plan.noise != plan.seed else []
    args += ["--calm"] if plan.calm else []
    args += ["--processes", str(plan.processes)] if plan.processes != chosen.plan(plan.seed).processes else []
    args += ["--linger 0"] if not plan.linger else []
    args += [f"--replication {chosen.replication}"] if chosen.replication else []
    args += [] if chosen.spool is None else ["--spool" if chosen.spool else "--no-spool"]
    return " ".join([*parts, f"ARGS='{' '.join(args)}'"] if args else parts)


def play_one(plan: Plan, chosen: Chosen, *, small: bool, reads: bool) -> int:
    """Play one plan, make it small if it fails, and tell it."""
    failures = play(plan)
    if not failures:
        tell(plan, reads)
        print("every promise was kept")
        return 0
    if small:
        plan = shrink(plan, play, failures[0].kind)
    tell(plan, reads)
    print(f"again: {replay_command(plan, chosen)}")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description="Plays a mirrored store in a simulated world.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds are played")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=0, help="processes that play seeds; 0 for one per core")
    parser.add_argument("--limit", type=int, default=0, help="stop after so many failures")
    parser.add_argument("--seed", type=int, help="play this seed only, and tell it")
    parser.add_argument("--keep", help="with --seed: only these operations and faults, such as o0,o3,f1")
    parser.add_argument("--noise", type=int, help="with --seed: other delays in the network")
    parser.add_argument("--calm", action="store_true", help="with --seed: no delays in the network")
    parser.add_argument("--processes", type=int, help="with --seed: so many processes")
    parser.add_argument("--linger", type=float, help="with --seed: seconds that pass before the end")
    parser.add_argument("--reads", action="store_true", help="tell reads as well")
    parser.add_argument("--replication", choices=("sync", "async"), help="of all plans")
    parser.add_argument("--spool", action=argparse.BooleanOptionalAction, help="of all plans")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable, [sys.executable, "-m", "simulate", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    given.jobs = given.jobs or os.cpu_count() or 1
    warnings.simplefilter("ignore", RuntimeWarning)
    chosen = Chosen(given.replication, given.spool)
    if given.seed is None:
        return 1 if play_seeds(chosen, range(given.start, given.start + given.seeds), given.jobs, given.limit) else 0
    plan = chosen.plan(given.seed)
    if given.keep is not None:
        plan = plan.only({*given.keep.split(",")})
    for name in ("noise", "processes", "linger"):
        if getattr(given, name) is not None:
            plan = msgspec.structs.replace(plan, **{name: getattr(given, name)})
    plan = msgspec.structs.replace(plan, calm=given.calm)
    return play_one(plan, chosen, small=given.keep is None, reads=given.reads)


if __name__ == "__main__":
    sys.exit(main())
