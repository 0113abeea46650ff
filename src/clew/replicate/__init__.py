"""Engines around engines: two stores that hold the same, one of which answers.

`mirror` is the engine, `reconcile` makes one lineage equal on two engines, `control` is what each side knows of its
role, `shipping` is the work that waits for the follower, `status` is what an operator sees.
"""
