"""The SQLite engine: one file, no server, safe between threads and processes.

* `place`: the file itself: is it a backtrail store, make it, open connections to it
* `migrations`: the schema, as numbered `.sql` files
* `writer`: the one connection that writes, and group commit
* `turns`: whose turn it is to write
* `readers`: a small pool of connections that read beside it
* `hands`: both of them, when the process forks
* `statements`, `changes`: the SQL, and what a commit, a sweep or a lease does with it
* `engine`: the engine contract, in terms of these
"""

from __future__ import annotations

from backtrail.engines.sqlite.engine import SQLiteEngine

__all__ = ["SQLiteEngine"]
