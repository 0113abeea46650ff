"""The JSONL engine: a directory of plain files, to be read, grepped, followed with `tail -f`, diffed and committed.

* `names`: a file name for any lineage
* `glass`: byte strings as JSON that a person can read, wherever that can be undone exactly
* `lines`: one commit as one line, with a checksum
* `log`: the file of one lineage, and `offsets`: where its records lie
* `directory`: is it a store?
* `catalogue`: what all the files hold, for listings, and a cache of that
* `leases`: the file of leases
* `engine`: the engine contract, in terms of these
"""

from __future__ import annotations

from backtrail.engines.jsonl.engine import JSONLEngine

__all__ = ["JSONLEngine"]
