"""Replication: engines that combine two stores with the same data, one of which is active.

A mirror, and what it does in the background:
    `mirror`           the engine over two sides: commits to both, reads and takes over
    `failover`         the health of the sides, and which of them is active, by the `role_record` of each
    `replicator`       brings the follower up to date with the lineages in the `outbox`, and fails back
    `head_comparison`  finds lineages that differ, whatever the outbox knows

Two sides of a lineage become one:
    `fast_forward`     the follower only lacks the newest saves: they are copied, also beside constant writers
    `merge`            all else: the loop that reads both sides and starts over if a head moved
    `absorption`       decides about each head, and writes to one side what it lacks
    `merge_rules`      which of two heads counts, and what a merge has to open and seal
    `lineage_union`    which marks and checkpoints count, and how many: without I/O
    `lineage_copy`     copies rows and blobs so that no head ever points at a missing row
    `deleted_threads`  tombstones: they tell a deleted thread from one that a side never had

Saves while both sides are unreachable:
    `spooling_engine`  a mirror that accepts them: when it goes adrift and comes back, and what it can answer meanwhile
    `head_cache`       the heads that such saves build on
    `spool`            stores them, with a journal that tells what they expected
    `spool_delivery`   has a side absorb them, as a merge does; `history/detached_saves` if what they build on is gone

For all of them: `settings` and `limits`, `status` with logs, and `concurrency`, which is sync or async.
"""
