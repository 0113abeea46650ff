-- Each query has a name, and takes its values as parameters. {schema} is the schema's name, quoted.

-- The types of this one's parameters are sent along: those of the function, in its order.
-- name: append
SELECT {schema}.append(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24
)

-- name: commit
SELECT {schema}.commit(
    %b::text, %b::text, %b::bigint, %b::bytea[], %b::text[], %b::bytea[], %b::bytea[], %b::bigint[], %b::bytea[],
    %b::bytea[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bigint[],
    %b::boolean[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[], %b::bytea[], %b::bigint[], %b::bigint[],
    %b::boolean[], %b::bytea[], %b::bytea[], %b::bigint[], %b::bigint[], %b::text[], %b::bigint[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bytea[]
)

-- name: drop
SELECT {schema}.drop(
    %b::text, %b::text[], %b::bytea[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bigint[], %b::bytea[],
    %b::bigint[], %b::bytea[], %b::bytea[]
)

-- name: head
SELECT thread, lineage, owner, branch, step, version, kind, created, updated, count, size, note
FROM {schema}.heads WHERE thread = %b

-- name: tip
SELECT (h).thread, (h).lineage, (h).owner, (h).branch, (h).step, (h).version, (h).kind, (h).created, (h).updated,
    (h).count, (h).size, (h).note, row_step, row_id, row_meta, row_digest, row_mark, row_root
FROM {schema}.tip(%b)

-- name: heads
SELECT thread, lineage, owner, branch, step, version, kind, created, updated, count, size, note
FROM {schema}.heads WHERE lineage = %b AND thread > %b ORDER BY thread LIMIT %b

-- The bounds of a prefix are texts: from the prefix itself to the first text that no longer begins with it.
-- name: threads
SELECT thread, lineage, owner, branch, step, version, kind, created, updated, count, size, note
FROM {schema}.heads
WHERE thread >= %(low)b AND (%(high)b::text IS NULL OR thread < %(high)b)
    AND (%(after)b::text IS NULL OR thread > %(after)b)
ORDER BY thread LIMIT %(limit)b::bigint

-- name: threads_of_kind
SELECT thread, lineage, owner, branch, step, version, kind, created, updated, count, size, note
FROM {schema}.heads
WHERE kind = %(kind)b AND thread >= %(low)b AND (%(high)b::text IS NULL OR thread < %(high)b)
    AND (%(after)b::text IS NULL OR thread > %(after)b)
ORDER BY thread LIMIT %(limit)b::bigint

-- name: count
SELECT coalesce(sum(threads), 0)::bigint FROM {schema}.counts

-- name: count_named
SELECT count(*) FROM {schema}.heads WHERE thread >= %(low)b AND (%(high)b::text IS NULL OR thread < %(high)b)

-- By one index (in a namespace, by the one that also has the namespace).
-- name: newest_of_kind
SELECT thread, lineage, owner, branch, step, version, kind, created, updated, count, size, note
FROM {schema}.heads h
WHERE h.kind = %(kind)b
    AND (%(after)b::text IS NULL
        OR (h.period, h.updated, h.thread)
            < (SELECT a.period, a.updated, a.thread FROM {schema}.heads a WHERE a.thread = %(after)b))
    AND h.thread >= %(low)b AND (%(high)b::text IS NULL OR h.thread < %(high)b)
    AND (%(namespace)b::text IS NULL OR split_part(h.thread, E'\x1f', 1) = %(namespace)b)
ORDER BY h.period DESC, h.updated DESC, h.thread DESC LIMIT %(limit)b::bigint

-- The newest of each kind; the newest of all are among them. There are only a few kinds.
-- name: newest
WITH RECURSIVE kinds (kind) AS (
    SELECT min(kind) FROM {schema}.heads
    WHERE %(namespace)b::text IS NULL OR (thread >= %(low)b AND split_part(thread, E'\x1f', 1) = %(namespace)b)
    UNION ALL
    SELECT (
        SELECT min(h.kind) FROM {schema}.heads h
        WHERE h.kind > kinds.kind
            AND (%(namespace)b::text IS NULL
                OR (h.thread >= %(low)b AND split_part(h.thread, E'\x1f', 1) = %(namespace)b)))
    FROM kinds WHERE kinds.kind IS NOT NULL
)
SELECT thread, lineage, owner, branch, step, version, newest.kind, created, updated, count, size, note
FROM kinds CROSS JOIN LATERAL (
    SELECT * FROM {schema}.heads h
    WHERE h.kind = kinds.kind
        AND (%(after)b::text IS NULL
            OR (h.period, h.updated, h.thread)
                < (SELECT a.period, a.updated, a.thread FROM {schema}.heads a WHERE a.thread = %(after)b))
        AND h.thread >= %(low)b AND (%(high)b::text IS NULL OR h.thread < %(high)b)
        AND (%(namespace)b::text IS NULL OR split_part(h.thread, E'\x1f', 1) = %(namespace)b)
    ORDER BY h.period DESC, h.updated DESC, h.thread DESC LIMIT %(limit)b::bigint
) AS newest
ORDER BY updated DESC, thread DESC LIMIT %(limit)b::bigint

-- Each name is found by one step through an index, however many records it has.
-- name: lineages
WITH RECURSIVE names (lineage) AS (
    SELECT least(
        (SELECT lineage FROM {schema}.branches WHERE lineage > %(after)b ORDER BY lineage LIMIT 1),
        (SELECT lineage FROM {schema}.heads WHERE lineage > %(after)b ORDER BY lineage LIMIT 1),
        (SELECT lineage FROM {schema}.blobs WHERE lineage > %(after)b ORDER BY lineage LIMIT 1)
    )
    UNION ALL
    SELECT least(
        (SELECT b.lineage FROM {schema}.branches b WHERE b.lineage > names.lineage ORDER BY b.lineage LIMIT 1),
        (SELECT h.lineage FROM {schema}.heads h WHERE h.lineage > names.lineage ORDER BY h.lineage LIMIT 1),
        (SELECT o.lineage FROM {schema}.blobs o WHERE o.lineage > names.lineage ORDER BY o.lineage LIMIT 1)
    ) FROM names WHERE names.lineage IS NOT NULL
)
SELECT lineage FROM names WHERE lineage IS NOT NULL LIMIT %(limit)b::bigint

-- name: branches
SELECT id, thread, owner, origin, origin_step, seal
FROM {schema}.branches WHERE lineage = %b ORDER BY n

-- name: row
SELECT row_step, row_id, row_meta, row_digest, row_mark, row_root, ''::bytea FROM {schema}.light_row(%b, %b, %b)

-- name: steps
SELECT s.step, s.id, s.meta, s.digest, m.data
FROM {schema}.branches b
JOIN {schema}.steps s ON s.n = b.n
LEFT JOIN {schema}.marks m ON m.n = s.n AND m.step = s.step
WHERE b.id = %b AND b.lineage = %b AND s.step BETWEEN %b AND %b ORDER BY s.step

-- The number of the branch is looked up first: only so does the index have the steps in this order, and end with the page.
-- name: newest_steps
SELECT s.step, s.id, s.meta, s.digest, m.data
FROM (
    SELECT * FROM {schema}.steps
    WHERE n = (SELECT n FROM {schema}.branches WHERE id = %b AND lineage = %b) AND step BETWEEN %b AND %b
    ORDER BY step DESC LIMIT %b
) AS s
LEFT JOIN {schema}.marks m ON m.n = s.n AND m.step = s.step
ORDER BY s.step DESC

-- OFFSET 0: the step of each mark is looked up, also where the planner would rather read all steps of the branch.
-- name: marked_steps
SELECT s.step, s.id, s.meta, s.digest, m.data
FROM (
    SELECT * FROM {schema}.marks
    WHERE n = (SELECT n FROM {schema}.branches WHERE id = %b AND lineage = %b) AND step BETWEEN %b AND %b
) AS m
CROSS JOIN LATERAL (SELECT * FROM {schema}.steps WHERE n = m.n AND step = m.step OFFSET 0) AS s
ORDER BY m.step

-- name: payloads
SELECT r.step, r.payload
FROM {schema}.branches b
JOIN {schema}.bodies r ON r.n = b.n
WHERE b.id = %b AND b.lineage = %b AND r.step BETWEEN %b AND %b ORDER BY r.step

-- name: rows
SELECT s.step, s.id, s.meta, s.digest, m.data, r.root, r.payload
FROM {schema}.branches b
JOIN {schema}.steps s ON s.n = b.n
LEFT JOIN {schema}.bodies r ON r.n = s.n AND r.step = s.step
LEFT JOIN {schema}.marks m ON m.n = s.n AND m.step = s.step
WHERE b.id = %b AND b.lineage = %b AND s.step BETWEEN %b AND %b ORDER BY s.step

-- name: locate
SELECT b.id, s.step, s.id
FROM {schema}.branches b
JOIN {schema}.steps s ON s.n = b.n
WHERE b.lineage = %b AND s.id BETWEEN %b AND %b LIMIT %b::bigint

-- name: blobs
SELECT id, data FROM {schema}.blobs WHERE lineage = %b AND id = ANY (%b::bytea[])

-- name: blob_ids
SELECT id, length(data) FROM {schema}.blobs
WHERE lineage = %(pool)b AND (%(after)b::bytea IS NULL OR id > %(after)b::bytea) ORDER BY id LIMIT %(limit)b::bigint

-- name: lease
SELECT given, has, its_token, until FROM {schema}.lease(%b::text, %b::text, %b::bigint)

-- Not waited for until it is on disk: a release that a crash of the server undoes ends with its lease, some seconds later.
-- name: release
WITH soon AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
UPDATE {schema}.leases SET expires = 0 FROM soon
WHERE name = %b AND owner = %b AND expires > {schema}.now_us() RETURNING token

-- name: ping
SELECT 1

-- name: stats
SELECT coalesce(sum(threads), 0)::bigint, coalesce(sum(branches), 0)::bigint, coalesce(sum(rows), 0)::bigint,
    coalesce(sum(blobs), 0)::bigint,
    (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
        JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = %b AND c.relkind IN ('r', 'S'))
FROM {schema}.counts

-- name: stats_between
WITH b AS (SELECT n FROM {schema}.branches WHERE lineage >= %(low)b AND (%(high)b::text IS NULL OR lineage < %(high)b)),
    s AS (SELECT count(*) AS rows, coalesce(sum(octet_length(s.meta)), 0) AS bytes FROM b JOIN {schema}.steps s ON s.n = b.n),
    r AS (SELECT coalesce(sum(octet_length(r.root) + octet_length(r.payload)), 0) AS bytes
        FROM b JOIN {schema}.bodies r ON r.n = b.n),
    m AS (SELECT coalesce(sum(octet_length(m.data)), 0) AS bytes FROM b JOIN {schema}.marks m ON m.n = b.n),
    o AS (SELECT count(*) AS blobs, coalesce(sum(octet_length(data)), 0) AS bytes FROM {schema}.blobs
        WHERE lineage >= %(low)b AND (%(high)b::text IS NULL OR lineage < %(high)b))
SELECT
    (SELECT count(*) FROM {schema}.heads WHERE lineage >= %(low)b AND (%(high)b::text IS NULL OR lineage < %(high)b)),
    (SELECT count(*) FROM b), s.rows, o.blobs, (s.bytes + r.bytes + m.bytes + o.bytes)::bigint
FROM s, r, m, o

-- One statement, so that both sides are of the same moment.
-- name: compare_counts
SELECT (SELECT count(*) FROM {schema}.heads), coalesce(sum(threads), 0)::bigint,
    (SELECT count(*) FROM {schema}.branches), coalesce(sum(branches), 0)::bigint,
    (SELECT count(*) FROM {schema}.steps), coalesce(sum(rows), 0)::bigint,
    (SELECT count(*) FROM {schema}.blobs), coalesce(sum(blobs), 0)::bigint
FROM {schema}.counts

-- Waits for the commits in progress, and keeps others out until the end of the transaction.
-- name: lock_counts
LOCK TABLE {schema}.counts IN EXCLUSIVE MODE

-- name: forget_counts
DELETE FROM {schema}.counts

-- name: recount
INSERT INTO {schema}.counts SELECT (SELECT count(*) FROM {schema}.heads), (SELECT count(*) FROM {schema}.branches),
    (SELECT count(*) FROM {schema}.steps), (SELECT count(*) FROM {schema}.blobs)

-- name: fold_counts
SELECT {schema}.fold_counts()

-- name: vacuum
VACUUM (ANALYZE) {schema}.heads, {schema}.steps, {schema}.bodies, {schema}.marks, {schema}.branches, {schema}.blobs,
    {schema}.leases, {schema}.counts

-- Everything in the schema that runs code or hides rows, and `store` if there is one.
-- name: objects
WITH ours AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = %b::text),
    tables AS (SELECT c.oid, c.relname, c.relkind FROM pg_catalog.pg_class c, ours WHERE c.relnamespace = ours.oid)
SELECT 'store'::text, relname::text, NULL::bytea FROM tables WHERE relname = 'store' AND relkind = 'r'
UNION ALL
SELECT 'function', p.proname::text, pg_catalog.sha256(pg_catalog.convert_to(p.prosrc, 'UTF8'))
FROM pg_catalog.pg_proc p, ours WHERE p.pronamespace = ours.oid
UNION ALL
SELECT 'view or foreign table', relname::text, NULL FROM tables WHERE relkind IN ('v', 'm', 'f')
UNION ALL
SELECT 'trigger', t.tgname::text, NULL
FROM pg_catalog.pg_trigger t JOIN tables ON tables.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL
SELECT 'rule', r.rulename::text, NULL
FROM pg_catalog.pg_rewrite r JOIN tables ON tables.oid = r.ev_class WHERE tables.relkind = 'r'
UNION ALL
SELECT 'policy', p.polname::text, NULL FROM pg_catalog.pg_policy p JOIN tables ON tables.oid = p.polrelid
