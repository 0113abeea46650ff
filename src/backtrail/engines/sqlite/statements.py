"""Every SQL statement of the engine, constant, so that SQLite prepares each of them once.

`steps` holds rows in the order in which they were written. `stretches` locates the rows of a branch: step s of a
stretch is at `pos + s - first`, and a stretch ends where the branch's next one begins. The last stretch of a branch
ends before the next row of another branch. A range of positions may reach too far, into rows of other branches or of
another stretch: these are filtered out. A missing row is simply absent.

Upper bounds on a text column may be a blob: SQLite sorts every blob after every text, so `b""` means "no upper bound".
The successor of a text or blob is the same with a zero byte added.
"""

from __future__ import annotations

FAR = 1 << 62  #: a position after all others
_HEAD = "thread, lineage, owner, branch, step, version, kind, created, updated, count, size, note"

# -- writing: what a save runs -----------------------------------------------------------------------------------

_MOVED = "owner = ?, branch = ?, step = ?, version = ?, created = ?, updated = ?, count = ?, size = ?, note = ?"
_KEY = "thread = ? AND branch = ? AND step = ? AND version = ?"
MOVE_HEAD = f"UPDATE heads SET {_MOVED} WHERE {_KEY} AND lineage = ? AND kind = ? AND listed < 0"  # noqa: S608 - constants only, here and below
MOVE_AND_UNSORT = f"UPDATE heads SET {_MOVED}, kind = ?, listed = ? WHERE {_KEY} AND lineage = ?"  # noqa: S608
SORT_OLDEST = """
UPDATE heads SET listed = max(updated, 0)
WHERE thread IN (SELECT thread FROM heads WHERE kind = ? AND listed < 0 ORDER BY listed LIMIT ?)"""
ADD_HEAD = "INSERT INTO heads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
LISTED = f"SELECT kind, listed FROM heads WHERE {_KEY}"  # noqa: S608
DELETE_HEAD = "DELETE FROM heads WHERE thread = ?"
ADD_TO_COUNT = "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n"
UNSORTED = "SELECT n FROM counts WHERE what = 'unsorted' AND kind = ?"
LAST_ROW = "SELECT pos, branch, step FROM steps ORDER BY pos DESC LIMIT 1"
# Except where a row that a sweep deleted had begun a stretch.
NEXT_ROW = """
INSERT INTO steps SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE NOT EXISTS (SELECT 1 FROM stretches WHERE branch = ?2 AND first = ?3)"""
# From branches, not VALUES: if another process has dropped the branch since we cached its number, no row is added.
ADD_ROW = "INSERT INTO steps SELECT ?, n, ?, ?, ?, ?, ?, ? FROM branches WHERE n = ?"
PLACE = """
SELECT r.pos + ?2 - r.first, s.branch, s.step
FROM stretches r LEFT JOIN steps s ON s.pos = r.pos + ?2 - r.first
WHERE r.branch = ?1 AND r.first <= ?2 ORDER BY r.first DESC LIMIT 1"""
ROW_BEHIND = "SELECT pos, branch, step FROM steps WHERE pos > ? ORDER BY pos LIMIT 1"
ADD_STRETCH = "INSERT INTO stretches VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET pos = excluded.pos"
NUMBER_BRANCH = "UPDATE counts SET n = n + 1 WHERE what IN ('branches', 'last branch')"
ADD_BRANCH = """
INSERT INTO branches SELECT n, ?, ?, ?, ?, ?, ?, ? FROM counts WHERE what = 'last branch' ON CONFLICT DO NOTHING"""
SET_MARK = "INSERT INTO marks VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET data = excluded.data"
DELETE_MARK = "DELETE FROM marks WHERE branch = ? AND step = ?"
ADD_BLOB = "INSERT INTO blobs (pool, id, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
AT_ONCE = 32  # blobs in one statement; with more, SQLite takes longer for each of them
_MANY = ", ".join(f"(?1, ?{2 * n}, ?{2 * n + 1})" for n in range(1, AT_ONCE + 1))
ADD_BLOBS = f"INSERT INTO blobs (pool, id, data) VALUES {_MANY} ON CONFLICT DO NOTHING"  # noqa: S608
FENCE = "SELECT 1 FROM leases WHERE name = ? AND token = ?"
BRANCH_NUMBER = "SELECT n FROM branches WHERE id = ? AND lineage = ?"

# -- sweeping ----------------------------------------------------------------------------------------------------

_HEADS = """
SELECT {0} FROM heads WHERE thread = ?1 AND lineage = ?1{1}
UNION ALL SELECT {0} FROM heads WHERE lineage = ?1 AND lineage <> thread{1}"""
HEAD_KEYS = _HEADS.format("thread, branch, step, version", "")
_AT = """
WHERE branch = ?1 AND step = ?2 AND pos = (
    SELECT r.pos + ?2 - r.first FROM stretches r WHERE r.branch = ?1 AND r.first <= ?2 ORDER BY r.first DESC LIMIT 1)"""
DELETE_ROW = f"DELETE FROM steps {_AT}"  # noqa: S608 - constants only, here and below
EMPTY_ROW = f"UPDATE steps SET root = x'', payload = x'' {_AT}"  # noqa: S608
DELETE_STRETCHES = "DELETE FROM stretches WHERE branch = ?"
DELETE_MARKS = "DELETE FROM marks WHERE branch = ?"
DELETE_BRANCH = "DELETE FROM branches WHERE n = ?"
# Stretches without any row left: one that follows a stretch with rows must stay, to mark the end of that stretch, but
# is moved to FAR; the others are deleted. The last stretch of a branch stays as it is. Only those are looked at that
# can have lost a row among steps ?2 to ?3, and the next one, which may be at FAR already.
EMPTY_STRETCHES = f"""
UPDATE stretches AS r SET pos = {FAR:d}
WHERE branch = ?1 AND pos < {FAR:d} AND first <= ?3
    AND first >= coalesce((SELECT max(x.first) FROM stretches x WHERE x.branch = ?1 AND x.first <= ?2), ?2)
    AND EXISTS (SELECT 1 FROM stretches x WHERE x.branch = ?1 AND x.first > r.first)
    AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.branch = ?1 AND s.step = s.pos - r.pos + r.first AND s.pos >= r.pos
        AND s.pos < r.pos - r.first + (SELECT min(x.first) FROM stretches x WHERE x.branch = ?1 AND x.first > r.first)
    )"""  # noqa: S608
DELETE_EMPTY_STRETCHES = f"""
DELETE FROM stretches AS r WHERE branch = ?1 AND pos = {FAR:d}
    AND first >= coalesce((SELECT max(x.first) FROM stretches x WHERE x.branch = ?1 AND x.first <= ?2), ?2)
    AND first <= coalesce((SELECT min(x.first) FROM stretches x WHERE x.branch = ?1 AND x.first > ?3), ?3)
    AND coalesce((
        SELECT x.pos FROM stretches x WHERE x.branch = ?1 AND x.first < r.first ORDER BY x.first DESC LIMIT 1
    ), {FAR:d}) = {FAR:d}"""  # noqa: S608
# A position is never used twice, so that a gap in a stretch always belongs to it: when the last row is deleted, an
# empty row of no branch holds the position until later rows follow.
DELETE_KEEPERS = """
DELETE FROM steps WHERE branch = 0 AND pos IN (SELECT pos FROM stretches WHERE branch = 0 AND pos < ?)"""
FORGET_KEEPERS = "DELETE FROM stretches WHERE branch = 0 AND pos < ?"
ADD_KEEPER = "INSERT INTO steps VALUES (?, 0, 0, x'', x'', x'', x'', x'')"
DELETE_BLOB = "DELETE FROM blobs WHERE pool = ? AND id = ?"
# Every row names its branch, so lost or damaged stretches can be rebuilt from the rows. A row that was written again
# while it was hidden counts once. No stretch continues after a gap: other branches may have rows in it. If the next
# stretch is elsewhere, one at FAR stands for the gap, as for stretches without any row left.
FORGET_STRETCHES = "DELETE FROM stretches WHERE branch <> 0"
FIND_STRETCHES = f"""
WITH found AS (SELECT branch, step, min(pos) AS pos FROM steps WHERE branch > 0 GROUP BY branch, step),
beside AS (
    SELECT branch, step, pos, pos - step AS shift, lag(step) OVER w AS last, lag(pos - step) OVER w AS before
    FROM found WINDOW w AS (PARTITION BY branch ORDER BY step)
)
INSERT INTO stretches
SELECT branch, step, pos FROM beside WHERE before IS NOT shift OR last + 1 < step
UNION ALL SELECT branch, last + 1, {FAR:d} FROM beside WHERE before <> shift AND last + 1 < step"""  # noqa: S608

# -- reading -----------------------------------------------------------------------------------------------------

HEAD = f"SELECT {_HEAD} FROM heads WHERE thread = ?"  # noqa: S608
TIP = """
SELECT h.thread, h.lineage, h.owner, h.branch, h.step, h.version, h.kind, h.created, h.updated, h.count, h.size, h.note,
    s.id, s.meta, s.digest, m.data, s.root
FROM heads h
LEFT JOIN branches b ON b.id = h.branch
LEFT JOIN stretches r ON r.branch = b.n
    AND r.first = (SELECT max(x.first) FROM stretches x WHERE x.branch = b.n AND x.first <= h.step)
LEFT JOIN steps s ON s.pos = r.pos + h.step - r.first AND s.branch = b.n AND s.step = h.step
LEFT JOIN marks m ON m.branch = s.branch AND m.step = s.step
WHERE h.thread = ?"""
HEADS = f"{_HEADS.format(_HEAD, ' AND thread >= ?2')} ORDER BY thread LIMIT ?3"
_NAMED = "thread >= ? AND thread < ?"
THREADS = f"SELECT {_HEAD} FROM heads WHERE {_NAMED} ORDER BY thread LIMIT ?"  # noqa: S608
THREADS_OF_KIND = f"SELECT {_HEAD} FROM heads WHERE {_NAMED} AND kind = ? ORDER BY thread LIMIT ?"  # noqa: S608
KINDS = "SELECT kind FROM counts WHERE what = 'threads'"
AGE = "SELECT updated FROM heads WHERE thread = ?"
# The unsorted threads are sorted by (updated, thread) alone; their other columns are read for those on the page.
_NEWEST = f"""
SELECT {_HEAD} FROM (
    SELECT * FROM heads WHERE thread IN (
        SELECT thread FROM heads WHERE kind = ?1 AND listed < 0 {{0}} {{1}}
        ORDER BY updated DESC, thread DESC LIMIT ?2)
    UNION ALL
    SELECT * FROM (SELECT * FROM heads WHERE kind = ?1 AND listed >= 0 {{0}} {{2}}
        ORDER BY listed DESC, thread DESC LIMIT ?2)
)
ORDER BY updated DESC, thread DESC LIMIT ?2"""  # noqa: S608
_AFTER = ("AND (updated, thread) < (?3, ?4)", "AND (listed, thread) < (?3, ?4)")
NEWEST, NEWEST_AFTER = _NEWEST.format("", "", ""), _NEWEST.format("", *_AFTER)
# In the words of the index on namespaces. Values 3 and 4 have no meaning on the first page.
_INSIDE = "AND thread >= char(1114111) AND substr(thread, 1, instr(thread, char(31)) - 1) = ?5"
NEWEST_INSIDE, NEWEST_INSIDE_AFTER = _NEWEST.format(_INSIDE, "", ""), _NEWEST.format(_INSIDE, *_AFTER)
COUNT_THREADS = "SELECT coalesce(sum(n), 0) FROM counts WHERE what = 'threads'"
COUNT_NAMED = "SELECT count(*) FROM heads WHERE thread >= ? AND thread < ?"
# Hops from one name to the next through the indexes, instead of reading every entry of them. The heads of threads that
# are no forks have no index by lineage: they are looked for only up to the next lineage that has a branch.
_NEXT = """
SELECT min(l) FROM (
    SELECT min(lineage) AS l FROM branches WHERE lineage {0}
    UNION ALL SELECT min(lineage) FROM heads WHERE lineage {0} AND lineage <> thread
    UNION ALL SELECT min(thread) FROM heads WHERE thread {0} AND lineage = thread
        AND thread < coalesce((SELECT min(lineage) FROM branches WHERE lineage {0}), x'')
    UNION ALL SELECT min(pool) FROM blobs WHERE pool {0})"""
LINEAGES = f"""
WITH RECURSIVE names (name) AS (
    SELECT ({_NEXT.format(">= ?1")})
    UNION ALL SELECT ({_NEXT.format("> name")}) FROM names WHERE name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL LIMIT ?2"""  # noqa: S608
BRANCHES = """
SELECT n, id, lineage, thread, owner, origin, origin_step, seal FROM branches WHERE lineage = ? ORDER BY n"""
_SPAN = """
FROM stretches r CROSS JOIN steps s ON s.pos BETWEEN r.pos - r.first + max(?2, r.first) AND r.pos - r.first + min(?3,
    coalesce((SELECT min(x.first) - 1 FROM stretches x WHERE x.branch = ?1 AND x.first > r.first), ?3))
{marks}
WHERE r.branch = ?1 AND r.first <= ?3 AND r.first >= coalesce(
    (SELECT max(x.first) FROM stretches x WHERE x.branch = ?1 AND x.first <= ?2), ?2)
    AND s.branch = ?1 AND s.step = s.pos - r.pos + r.first
ORDER BY r.first {down}, s.pos {down}"""
_MARKS = "LEFT JOIN marks m ON m.branch = s.branch AND m.step = s.step"
_MARKED, _BARE = _SPAN.format(marks=_MARKS, down=""), _SPAN.format(marks="", down="")
ROW = f"SELECT s.step, s.id, s.meta, s.digest, m.data, s.root, x'' {_MARKED}"
STEPS = f"SELECT s.step, s.id, s.meta, s.digest, m.data {_MARKED}"
NEWEST_STEPS = f"SELECT s.step, s.id, s.meta, s.digest, m.data {_SPAN.format(marks=_MARKS, down='DESC')} LIMIT ?4"
MARKED_STEPS = """
SELECT s.step, s.id, s.meta, s.digest, m.data
FROM marks m CROSS JOIN steps s ON s.branch = m.branch AND s.step = m.step AND s.pos = (
    SELECT r.pos + m.step - r.first FROM stretches r
    WHERE r.branch = m.branch AND r.first <= m.step ORDER BY r.first DESC LIMIT 1)
WHERE m.branch = ?1 AND m.step BETWEEN ?2 AND ?3 ORDER BY m.step"""
PAYLOADS = f"SELECT s.step, s.payload {_BARE}"
ROWS = f"SELECT s.step, s.id, s.meta, s.digest, m.data, s.root, s.payload {_MARKED}"
DELETE_ROWS = f"DELETE FROM steps WHERE pos IN (SELECT s.pos {_BARE})"  # noqa: S608
_END = """coalesce(
    (SELECT s.pos - 1 FROM steps s WHERE s.pos > r.pos AND s.branch <> r.branch ORDER BY s.pos LIMIT 1),
    (SELECT max(s.pos) FROM steps s), r.pos)"""
# In the last stretch of a branch, the row at or behind a position is of the branch up to its last row, and of another
# branch, or absent, after that. So the last row is found by leaps that double for as long as they land in the branch,
# and are halved from then on. If there is no row from step ?2 on, the result is that step or an earlier one.
_LANDS = "coalesce((SELECT s.branch FROM steps s WHERE s.pos >= {} ORDER BY s.pos LIMIT 1) = ?1, 0)"
_START, _NEXT_LEAP = "max(place, place - first + ?2)", "iif(lands AND longer, leap * 2, leap / 2)"
LAST_STEP_OF = f"""
WITH RECURSIVE
last (first, place) AS (SELECT first, pos FROM stretches WHERE branch = ?1 ORDER BY first DESC LIMIT 1),
leaps (at, leap, longer, lands) AS (
    SELECT {_START}, 1, 1, 1 FROM last
    UNION ALL
    SELECT at + lands * leap, {_NEXT_LEAP}, lands AND longer, {_LANDS.format(f"at + lands * leap + {_NEXT_LEAP}")}
    FROM leaps WHERE leap > 0
)
SELECT first - place + iif({_LANDS.format(f"{_START} + 1")}, (SELECT at FROM leaps WHERE leap = 0), {_START})
FROM last"""  # noqa: S608
LOCATE = f"""
SELECT b.id, s.step, s.id
FROM branches b CROSS JOIN stretches r ON r.branch = b.n CROSS JOIN steps s ON s.pos BETWEEN r.pos AND coalesce(
    (SELECT r.pos - r.first - 1 + min(x.first) FROM stretches x WHERE x.branch = b.n AND x.first > r.first), {_END})
WHERE b.lineage = ? AND s.branch = b.n AND s.step = s.pos - r.pos + r.first AND s.id BETWEEN ? AND ?
ORDER BY b.n, r.first, s.pos LIMIT ?"""  # noqa: S608
BLOB = "SELECT data FROM blobs WHERE pool = ? AND id = ?"
BLOBS = f"SELECT id, data FROM blobs WHERE pool = ? AND id IN ({', '.join('?' * AT_ONCE)})"  # noqa: S608
BLOB_IDS = "SELECT id, length(data) FROM blobs WHERE pool = ? AND id >= ? ORDER BY id LIMIT ?"
ANYTHING = "SELECT 1 FROM branches LIMIT 1"

# -- kept counts --------------------------------------------------------------------------------------------------

# A position is never used twice; the number of a deleted blob may be, if it was the highest.
_ROWS, _BLOBS = "(SELECT coalesce(max(pos), 0) FROM steps)", "(SELECT coalesce(max(n), 0) FROM blobs)"
_COUNT = "coalesce((SELECT n FROM counts WHERE what = '{}'), 0)"  # a damaged store may lack it
COUNTS = f"""
SELECT {_ROWS} - {_COUNT.format("missing rows")} AS rows, {_COUNT.format("branches")} AS branches,
    {_BLOBS} - {_COUNT.format("missing blobs")} AS blobs"""
COUNTED = """
SELECT (SELECT count(*) FROM steps WHERE branch > 0) AS rows, (SELECT count(*) FROM branches) AS branches,
    (SELECT count(*) FROM blobs) AS blobs"""
SET_COUNTS = f"""
INSERT OR REPLACE INTO counts VALUES
('missing rows', '', {_ROWS} - ?), ('branches', '', ?), ('missing blobs', '', {_BLOBS} - ?)"""  # noqa: S608
_HEADS_COUNTED = """
SELECT 'threads', kind, count(*) AS n FROM heads GROUP BY kind
UNION ALL SELECT 'unsorted', kind, count(*) FROM heads WHERE listed < 0 GROUP BY kind"""
FORGET_COUNTS_OF_HEADS = "DELETE FROM counts WHERE what IN ('threads', 'unsorted')"
COUNT_HEADS = f"INSERT INTO counts {_HEADS_COUNTED}"
COMPARED = f"""
WITH c AS ({COUNTS}), d AS ({COUNTED}), h (what, kind, n) AS ({_HEADS_COUNTED})
SELECT 'rows', c.rows, d.rows FROM c, d
UNION ALL SELECT 'branches', c.branches, d.branches FROM c, d
UNION ALL SELECT 'blobs', c.blobs, d.blobs FROM c, d
UNION ALL SELECT what || ' of the kind ' || kind, sum(kept), sum(there) FROM (
    SELECT what, kind, n AS kept, 0 AS there FROM counts WHERE what IN ('threads', 'unsorted')
    UNION ALL SELECT what, kind, 0, n FROM h
) GROUP BY what, kind
UNION ALL SELECT 'threads in the order of age', (SELECT count(*) FROM heads WHERE listed >= 0),
    (SELECT count(*) FROM heads WHERE listed >= 0 AND listed = max(updated, 0))"""  # noqa: S608
SORT_MISPLACED = "UPDATE heads SET listed = max(updated, 0) WHERE listed >= 0 AND listed <> max(updated, 0)"

# -- leases ------------------------------------------------------------------------------------------------------

LEASE = "SELECT token, owner, expires FROM leases WHERE name = ?"
RENEW_LEASE = "UPDATE leases SET expires = ? WHERE name = ?"
TAKE_LEASE = "INSERT OR REPLACE INTO leases (name, owner, expires) VALUES (?, ?, ?)"
RELEASE_LEASE = "UPDATE leases SET expires = 0 WHERE name = ? AND owner = ? AND expires > ?"
FORGET_LEASES = "DELETE FROM leases WHERE expires < ?"
