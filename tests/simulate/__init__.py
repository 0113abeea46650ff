"""A mirrored store in a simulated world: processes, two servers, the network between them, the clock, all in one loop.

`make simulate SEEDS=1000` makes a plan from each seed (what each process does, and what goes wrong at which moment),
plays it, heals everything, and checks what a mirror promises. Nothing sleeps, nothing is random that the seed does not
say, and so a seed is played the same way each time: in some milliseconds, however much time passes in its world.

* `plan` makes a plan from a seed: only data, so that a part of it can be left out.
* `loop` is an event loop with a clock of its own, in which a process can die or be stopped between any two steps.
* `clocks` puts the simulated clock and dice in the place of the system's.
* `network` carries the calls of processes to the two servers, and loses, delays or repeats them.
* `workload` has the operations, and the ledger of what was acknowledged; `trace`, what each server carried out.
* `world` plays a plan; `checker` compares the end with the ledger.
* `story` tells what happened, `shrink` leaves out what a failure does not need.
"""
