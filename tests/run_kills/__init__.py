"""Durable runs whose processes are killed with -9 at random instants, and the proof that they keep their promises.

* `plan` draws the programs: steps of all kinds, questions, sleeps, checkpoints, sub-runs.
* `program` plays one, over the sync or the async API, and logs its effects.
* `ledger` is the log, beside the store and fsynced, and the checks of what it has in the end.
* `processes` has what each process does: plays, works, answers, reads.
* `rounds` starts the processes, kills them, answers the questions, and counts.
"""
