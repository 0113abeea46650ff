"""Engines around engines: two stores that hold the same, one of which answers.

`mirror` is the engine, `reconcile` makes one lineage equal on two engines, `control` is what each side knows of its
role, `shipping` is the work that waits for the follower, `status` is what an operator sees. `spooled` is a mirror that
goes on while both sides are away: `spool` is where saves wait, `landing` brings them where they belong, `tips` is what
they build on meanwhile.
"""
