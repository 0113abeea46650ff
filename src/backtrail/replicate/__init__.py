"""Replication: engines that combine two stores with the same data, one of which is active.

`mirror` is the engine. `failover` decides which side is active, by the `role_record` of each; `replicator` brings the
follower up to date: from the `outbox`, or by comparison (`anti_entropy`, with `row_copy`, `lost_heads` and
`sweep_tombstones`). `status` and `report` describe the results.

`spooling_engine` is a mirror that accepts saves while both sides are unreachable: `spool` stores them, `replay`
delivers them, and `head_cache` holds the heads that they build on meanwhile.
"""
