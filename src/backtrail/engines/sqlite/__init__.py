"""The SQLite engine: one file, no server, safe between threads and processes.

* `database_file`: checks that the file is a backtrail store, makes it, opens connections to it
* `disk_check`: tells a disk that fails from a file that is damaged
* `schema_check`: refuses a schema that is not ours, because a schema is code
* `migrations`: the schema, as numbered `.sql` files
* `writer`: the one connection that writes, and group commit
* `saved_tips`: the tips that were saved last, for a caller that reads what it saved
* `write_queue`: the queue of callers that wait to write
* `reader_pool`: a small pool of connections that read while it writes
* `connections`: closes both before the process forks
* `statements`, `transactions`: the SQL, and the functions that apply a commit, a sweep or a lease with it
* `engine`: the engine contract, in terms of these
"""

from __future__ import annotations

from backtrail.engines.sqlite.engine import SQLiteEngine

__all__ = ["SQLiteEngine"]
