"""Engines around engines: two stores that hold the same, one of which answers.

`mirror` is the engine. `failover` knows which side is active, by the `role_record` of each; `replicator` brings the
follower up to date: from the `outbox`, or by comparing (`anti_entropy`, with `row_copy`, `lost_heads` and
`sweep_tombstones`). `status` and `report` tell what happened.

`spooled` is a mirror that takes saves while both sides are unreachable: `spool` keeps them, `replay` delivers them, and
`head_cache` is what they build on meanwhile.
"""
