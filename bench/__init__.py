"""backtrail beside other stores and beside the floor, in one run: `python -m bench`, or `make bench`.

The floor is the time or the bytes that the machine itself needs, without a store.

Each workload is one file in `workloads/`, each contender one class in `contenders/`. Contenders take turns in small
chunks, so that a slow minute of the machine is shared by all of them; the tables show medians over several rounds.
Every figure that backtrail promises is a row of the last table: reached, or not.
"""
