"""backtrail against its neighbours and against the floor, in one run: `python -m bench`, or `make bench`.

Each workload is one file in `workloads/`, each contender one class in `peers/` or `subject.py`. Contenders take
turns in small chunks, so that a slow minute of the machine is shared by all of them; what is printed is a median
over several rounds. Every figure that backtrail promises is a row of the last table: reached, or not.
"""
