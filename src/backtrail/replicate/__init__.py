"""Replication: engines that combine two stores with the same data, one of which is active.

`mirror` is the engine. `failover` decides which side is active, by the `role_record` of each. `replicator` brings the
follower up to date with the lineages in the `outbox`: by a `fast_forward` if it only lacks the newest saves, else by a
`merge`, which copies rows with `lineage_copy` and tells deletions by the tombstones of `deleted_threads`.
`head_comparison` finds lineages that differ, and `status` describes the result.

`spooling_engine` is a mirror that accepts saves while both sides are unreachable: `spool` stores them, `spool_courier`
takes them to the sides, `spool_delivery` has one of these absorb a lineage, and `head_cache` holds the heads that saves
build on meanwhile.
"""
