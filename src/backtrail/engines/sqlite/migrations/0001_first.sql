-- Numbers that are kept, all in one page. A save of a thread that is unsorted (see heads) does not touch them.
--   threads, unsorted   of each kind
--   branches            and the number that the last one got
--   rows, blobs         the numbers missing below the highest one: only a sweep makes any go missing
CREATE TABLE counts (
    what TEXT NOT NULL,
    kind TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (what, kind)
) WITHOUT ROWID;
INSERT INTO counts VALUES ('branches', '', 0), ('last branch', '', 0), ('missing rows', '', 0), ('missing blobs', '', 0);

-- Branch numbers are never used twice (counts has the last one), so that a process with a cached number of a branch that
-- another process has dropped finds nothing under it, and never the rows of another branch.
CREATE TABLE branches (
    n INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    lineage TEXT NOT NULL,
    thread TEXT NOT NULL,
    owner BLOB NOT NULL,
    origin BLOB,
    origin_step INTEGER,
    seal BLOB NOT NULL
);
CREATE INDEX branches_by_lineage ON branches (lineage);

-- Rows are stored in the order in which they were written, whatever their branch: an append always goes to the last
-- page, even if thousands of threads take turns. Sorted by branch, each of those rows would split a page in the middle.
--
-- The light half comes first and a large payload goes to overflow pages that history never visits. A second table for
-- the heavy half would make a third dirty page out of each commit, and 5 % more on disk.
CREATE TABLE steps (
    pos INTEGER PRIMARY KEY,
    branch INTEGER NOT NULL,
    step INTEGER NOT NULL,
    id BLOB NOT NULL,
    digest BLOB NOT NULL,
    meta BLOB NOT NULL,
    root BLOB NOT NULL,
    payload BLOB NOT NULL
);

-- A stretch is a run of consecutive steps of one branch in adjacent rows: step s of it is at pos + s - first, up to
-- where the next stretch of the branch begins. A branch that is written alone only ever has one stretch, so most commits
-- do not touch this table.
CREATE TABLE stretches (
    branch INTEGER NOT NULL,
    first INTEGER NOT NULL,
    pos INTEGER NOT NULL,
    PRIMARY KEY (branch, first)
) WITHOUT ROWID;

CREATE TABLE marks (
    branch INTEGER NOT NULL,
    step INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (branch, step)
) WITHOUT ROWID;

-- `listed` is the thread's place in the order of age, and moves far less often than `updated`: a save dirties one page
-- of this tree and no other. It is `updated`, or less than 0 for an unsorted thread: then later saves leave it as it is,
-- and a listing sorts these threads itself. When too many are unsorted, those that have been so the longest are sorted.
CREATE TABLE heads (
    thread TEXT NOT NULL PRIMARY KEY,
    lineage TEXT NOT NULL,
    owner BLOB NOT NULL,
    branch BLOB NOT NULL,
    step INTEGER NOT NULL,
    version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    note BLOB NOT NULL,
    listed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX heads_of_forks ON heads (lineage) WHERE lineage <> thread;
CREATE INDEX heads_by_kind ON heads (kind);
CREATE INDEX heads_by_age ON heads (kind, listed);
-- The same order within each namespace: a name in one begins with the last code point of Unicode, and char(31) ends it.
CREATE INDEX heads_in_namespace ON heads (substr(thread, 1, instr(thread, char(31)) - 1), kind, listed)
WHERE thread >= char(1114111);

CREATE TABLE blobs (
    n INTEGER PRIMARY KEY,
    pool TEXT NOT NULL,
    id BLOB NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (pool, id)
);

-- The token is the row's own number: replacing a row gives a higher one than any before, even if it was deleted.
CREATE TABLE leases (
    token INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    expires INTEGER NOT NULL
);
