"""Every SQL statement of the engine, constant, so that SQLite prepares each of them once.

`pos` is a branch's number << 32 | step. Upper bounds on a text column may be a blob: SQLite sorts every blob after
every text, so `b""` means "no upper bound". The successor of a text or blob is itself and one more zero byte.
"""

from __future__ import annotations

_HEAD = "thread, lineage, owner, branch, step, version, kind, created, updated, count, size, note"

# -- writing: what a save runs -----------------------------------------------------------------------------------

MOVE_HEAD = """
UPDATE heads SET owner = ?, branch = ?, step = ?, version = ?, kind = ?, created = ?, updated = ?, count = ?, size = ?,
    note = ?
WHERE thread = ? AND branch = ? AND step = ? AND version = ? AND lineage = ?"""
ADD_HEAD = "INSERT INTO heads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
DELETE_HEAD = "DELETE FROM heads WHERE thread = ? AND branch = ? AND step = ? AND version = ?"
# From branches, not VALUES: a branch that another process dropped since we learnt its number takes no more rows.
ADD_ROW = "INSERT INTO steps SELECT ?, ?, ?, ?, ?, ? FROM branches WHERE n = ?"
ADD_BRANCH = """
INSERT INTO branches (id, lineage, thread, owner, origin, origin_step) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""
SET_MARK = "INSERT INTO marks VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data"
DELETE_MARK = "DELETE FROM marks WHERE pos = ?"
ADD_BLOB = "INSERT INTO blobs (pool, id, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
FENCE = "SELECT 1 FROM leases WHERE name = ? AND token = ?"
BRANCH_NUMBER = "SELECT n FROM branches WHERE id = ? AND lineage = ?"

# -- sweeping ----------------------------------------------------------------------------------------------------

HEAD_KEYS = "SELECT thread, branch, step, version FROM heads WHERE lineage = ?"
DELETE_ROW = "DELETE FROM steps WHERE pos = ?"
EMPTY_ROW = "UPDATE steps SET root = x'', payload = x'' WHERE pos = ?"
DELETE_ROWS = "DELETE FROM steps WHERE pos BETWEEN ? AND ?"
DELETE_MARKS = "DELETE FROM marks WHERE pos BETWEEN ? AND ?"
DELETE_BRANCH = "DELETE FROM branches WHERE n = ?"
DELETE_BLOB = "DELETE FROM blobs WHERE pool = ? AND id = ?"

# -- reading -----------------------------------------------------------------------------------------------------

HEAD = f"SELECT {_HEAD} FROM heads WHERE thread = ?"  # noqa: S608 - constants only, here and below
TIP = """
SELECT h.thread, h.lineage, h.owner, h.branch, h.step, h.version, h.kind, h.created, h.updated, h.count, h.size, h.note,
    s.id, s.meta, s.digest, m.data, s.root
FROM heads h
LEFT JOIN branches b ON b.id = h.branch
LEFT JOIN steps s ON s.pos = (b.n << 32 | h.step)
LEFT JOIN marks m ON m.pos = s.pos
WHERE h.thread = ?"""
HEADS = f"SELECT {_HEAD} FROM heads WHERE lineage = ? ORDER BY thread"  # noqa: S608
THREADS = f"""
SELECT {_HEAD} FROM heads
WHERE thread >= ?1 AND thread < ?2 AND (?3 IS NULL OR kind = ?3)
ORDER BY thread LIMIT ?4"""  # noqa: S608
NEWEST = f"""
SELECT {_HEAD} FROM heads
WHERE thread >= ?1 AND thread < ?2 AND (?3 IS NULL OR kind = ?3)
ORDER BY updated DESC, thread DESC LIMIT ?4"""  # noqa: S608
NEWEST_AFTER = f"""
SELECT {_HEAD} FROM heads
WHERE thread >= ?1 AND thread < ?2 AND (?3 IS NULL OR kind = ?3)
    AND (updated, thread) < (SELECT updated, thread FROM heads WHERE thread = ?5)
ORDER BY updated DESC, thread DESC LIMIT ?4"""  # noqa: S608
# Hops from one name to the next through the three indexes, instead of reading every entry of them.
LINEAGES = """
WITH RECURSIVE names (name) AS (
    SELECT (SELECT min(l) FROM (
        SELECT min(lineage) AS l FROM branches WHERE lineage >= ?1
        UNION ALL SELECT min(lineage) FROM heads WHERE lineage >= ?1
        UNION ALL SELECT min(pool) FROM blobs WHERE pool >= ?1))
    UNION ALL
    SELECT (SELECT min(l) FROM (
        SELECT min(lineage) AS l FROM branches WHERE lineage > name
        UNION ALL SELECT min(lineage) FROM heads WHERE lineage > name
        UNION ALL SELECT min(pool) FROM blobs WHERE pool > name))
    FROM names WHERE name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL LIMIT ?2"""
BRANCHES = "SELECT id, lineage, thread, owner, origin, origin_step FROM branches WHERE lineage = ? ORDER BY n"
ROW = """
SELECT s.pos & 4294967295, s.id, s.meta, s.digest, m.data, s.root, x''
FROM steps s LEFT JOIN marks m ON m.pos = s.pos WHERE s.pos BETWEEN ? AND ?"""
STEPS = """
SELECT s.pos & 4294967295, s.id, s.meta, s.digest, m.data
FROM steps s LEFT JOIN marks m ON m.pos = s.pos WHERE s.pos BETWEEN ? AND ? ORDER BY s.pos"""
PAYLOADS = "SELECT pos & 4294967295, payload FROM steps WHERE pos BETWEEN ? AND ? ORDER BY pos"
ROWS = """
SELECT s.pos & 4294967295, s.id, s.meta, s.digest, m.data, s.root, s.payload
FROM steps s LEFT JOIN marks m ON m.pos = s.pos WHERE s.pos BETWEEN ? AND ? ORDER BY s.pos"""
LOCATE = """
SELECT b.id, s.pos & 4294967295, s.id
FROM branches b CROSS JOIN steps s ON s.pos BETWEEN b.n << 32 AND b.n << 32 | 4294967295
WHERE b.lineage = ? AND s.id BETWEEN ? AND ? ORDER BY b.n, s.pos LIMIT ?"""
BLOB = "SELECT data FROM blobs WHERE pool = ? AND id = ?"
BLOB_IDS = "SELECT id, length(data) FROM blobs WHERE pool = ? AND id >= ? ORDER BY id LIMIT ?"
ANYTHING = "SELECT 1 FROM branches LIMIT 1"
COUNTS = """
SELECT (SELECT count(*) FROM heads), (SELECT count(*) FROM branches), (SELECT count(*) FROM steps),
    (SELECT count(*) FROM blobs)"""

# -- leases ------------------------------------------------------------------------------------------------------

LEASE = "SELECT token, owner, expires FROM leases WHERE name = ?"
RENEW_LEASE = "UPDATE leases SET expires = ? WHERE name = ?"
TAKE_LEASE = "INSERT OR REPLACE INTO leases (name, owner, expires) VALUES (?, ?, ?)"
RELEASE_LEASE = "UPDATE leases SET expires = 0 WHERE name = ? AND owner = ? AND expires > ?"
FORGET_LEASES = "DELETE FROM leases WHERE expires < ?"
