"""The JSONL engine: a directory of plain files, to be read, grepped, followed with `tail -f`, diffed and committed.

* `file_names`: a file name for any lineage
* `readable_json`: byte strings as JSON that a person can read, if it converts back to exactly the same bytes
* `line_format`: one commit as one line, with a checksum
* `log`: the file of one lineage; `offsets`: where its records lie; `compaction`: which of them still count
* `layout`: checks that a directory is a store, or creates one in it
* `catalogue`: the heads and branches of all files, for listings, and a cache of them
* `leases`: the file of leases
* `engine`: the engine contract, in terms of these
"""

from __future__ import annotations

from backtrail.engines.jsonl.engine import JSONLEngine

__all__ = ["JSONLEngine"]
