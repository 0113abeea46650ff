-- Each of these functions is called in one statement: one transaction and one round trip.
-- Refusals have the SQLSTATE BTRL0 and name the refused record in their detail.
-- This file has the current version of every function, which replaces that of any earlier format. A function whose
-- arguments change has to be dropped by that format's migration, or both versions would exist.

CREATE OR REPLACE FUNCTION {schema}.refuse(reason text, fact text) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'BTRL0', MESSAGE = 'backtrail: ' || reason, DETAIL = fact, HINT = reason;
END
$body$;

-- A commit that relies on a lease and a call that gives it to another owner exclude each other by an advisory lock: a
-- lock on the lease's row would write to it in every commit. In READ COMMITTED, the statement after the lock sees the
-- current row. At a stricter isolation level it sees an older snapshot, so the row has to be locked as well.
CREATE OR REPLACE FUNCTION {schema}.rely(fence_name text, fence_token bigint) RETURNS boolean
LANGUAGE plpgsql AS $body$
BEGIN
    IF pg_advisory_xact_lock_shared(hashtextextended(fence_name, 1)) IS NULL THEN RETURN false; END IF;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM FROM {schema}.leases WHERE name = fence_name AND token = fence_token;
    ELSE
        PERFORM FROM {schema}.leases WHERE name = fence_name AND token = fence_token FOR SHARE;
    END IF;
    IF NOT FOUND THEN PERFORM {schema}.refuse('fence', fence_name); END IF;
    RETURN true;
END
$body$;

-- Add to the numbers of records, at the end of a commit. About one commit in 500 replaces all rows of `counts` by their
-- sum: reading it costs some 500 rows, whatever was saved. Only one does so at a time, and the others do not wait. (At a
-- stricter isolation level it could meet rows that another one replaced, and fail: there, compact() does it.)
CREATE OR REPLACE FUNCTION {schema}.add_to_counts(
    more_threads bigint, more_branches bigint, more_rows bigint, more_blobs bigint
) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    IF more_threads <> 0 OR more_branches <> 0 OR more_rows <> 0 OR more_blobs <> 0 THEN
        INSERT INTO {schema}.counts VALUES (more_threads, more_branches, more_rows, more_blobs);
    END IF;
    IF random() < 0.002 AND current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM {schema}.fold_counts();
    END IF;
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.fold_counts() RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    IF pg_try_advisory_xact_lock(hashtextextended({schema_name}, 2)) THEN
        WITH folded AS (DELETE FROM {schema}.counts RETURNING threads, branches, rows, blobs)
        INSERT INTO {schema}.counts SELECT sum(threads), sum(branches), sum(rows), sum(blobs) FROM folded
            HAVING count(*) > 0;
    END IF;
END
$body$;

-- The usual commit: one row after the head, and the head's move to it. It needs no lock on the lineage: a sweep locks
-- every existing head, so also this one.
CREATE OR REPLACE FUNCTION {schema}.append(
    of_lineage text, of_thread text, expected_branch bytea, expected_step bigint, expected_version bigint,
    new_owner bytea, new_branch bytea, new_step bigint, new_version bigint, new_kind text,
    new_created bigint, new_updated bigint, new_count bigint, new_size bigint, new_note bytea,
    row_branch bytea, row_step bigint, row_id bytea, row_meta bytea, row_digest bytea, row_root bytea, row_payload bytea,
    fence_name text, fence_token bigint
) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    number bigint;
BEGIN
    IF fence_token IS NOT NULL AND {schema}.rely(fence_name, fence_token) THEN NULL; END IF;
    UPDATE {schema}.heads SET
        lineage = of_lineage, owner = new_owner, branch = new_branch, step = new_step, version = new_version,
        kind = new_kind, created = new_created, updated = new_updated, count = new_count, size = new_size, note = new_note
        WHERE thread = of_thread AND branch = expected_branch AND step = expected_step AND version = expected_version;
    IF NOT FOUND THEN PERFORM {schema}.refuse('moved', of_thread); END IF;
    SELECT n INTO number FROM {schema}.branches WHERE id = row_branch AND lineage = of_lineage;
    IF number IS NULL THEN PERFORM {schema}.refuse('gone', encode(row_branch, 'hex')); END IF;
    INSERT INTO {schema}.steps VALUES (number, row_step, row_id, row_meta, row_digest) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN PERFORM {schema}.refuse('step', encode(row_branch, 'hex') || ' ' || row_step); END IF;
    INSERT INTO {schema}.bodies VALUES (number, row_step, row_root, row_payload);
    PERFORM {schema}.add_to_counts(0, 0, 1, 0);
END
$body$;

-- Any other commit. The columns of one kind of record have one length, or are NULL if there are none. An empty byte string
-- means "no branch". A sweep of the lineage takes the same lock exclusively, so nothing appears during it.
CREATE OR REPLACE FUNCTION {schema}.commit(
    of_lineage text,
    fence_name text, fence_token bigint,
    branch_ids bytea[], branch_threads text[], branch_owners bytea[], branch_origins bytea[], branch_origin_steps bigint[],
    branch_seals bytea[],
    row_branches bytea[], row_steps bigint[], row_ids bytea[], row_metas bytea[], row_digests bytea[],
    row_roots bytea[], row_payloads bytea[],
    mark_branches bytea[], mark_steps bigint[], mark_keeps boolean[], mark_datas bytea[],
    blob_ids bytea[], blob_datas bytea[],
    swap_threads text[], expected_branches bytea[], expected_steps bigint[], expected_versions bigint[], deletes boolean[],
    new_owners bytea[], new_branches bytea[], new_steps bigint[], new_versions bigint[], new_kinds text[],
    new_createds bigint[], new_updateds bigint[], new_counts bigint[], new_sizes bigint[], new_notes bytea[]
) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    high constant bigint := (('x' || left(md5(of_lineage), 4))::bit(16)::bigint & 32767) << 48;
    numbers bigint[];
    more_threads bigint := 0;
    more_blobs bigint := 0;
    i integer;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(of_lineage, 0));

    IF fence_token IS NOT NULL AND {schema}.rely(fence_name, fence_token) THEN NULL; END IF;

    FOR i IN 1 .. coalesce(array_length(swap_threads, 1), 0) LOOP
        IF expected_branches[i] = '' THEN
            IF deletes[i] THEN
                PERFORM FROM {schema}.heads WHERE thread = swap_threads[i];
                IF FOUND THEN PERFORM {schema}.refuse('moved', swap_threads[i]); END IF;
            ELSE
                INSERT INTO {schema}.heads VALUES (
                    swap_threads[i], of_lineage, new_owners[i], new_branches[i], new_steps[i], new_versions[i], new_kinds[i],
                    new_createds[i], new_updateds[i], new_counts[i], new_sizes[i], new_notes[i]
                ) ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN PERFORM {schema}.refuse('moved', swap_threads[i]); END IF;
                more_threads := more_threads + 1;
            END IF;
        ELSIF deletes[i] THEN
            DELETE FROM {schema}.heads
                WHERE thread = swap_threads[i] AND branch = expected_branches[i]
                    AND step = expected_steps[i] AND version = expected_versions[i];
            IF NOT FOUND THEN PERFORM {schema}.refuse('moved', swap_threads[i]); END IF;
            more_threads := more_threads - 1;
        ELSE
            UPDATE {schema}.heads SET
                lineage = of_lineage, owner = new_owners[i], branch = new_branches[i], step = new_steps[i],
                version = new_versions[i], kind = new_kinds[i], created = new_createds[i], updated = new_updateds[i],
                count = new_counts[i], size = new_sizes[i], note = new_notes[i]
                WHERE thread = swap_threads[i] AND branch = expected_branches[i]
                    AND step = expected_steps[i] AND version = expected_versions[i];
            IF NOT FOUND THEN PERFORM {schema}.refuse('moved', swap_threads[i]); END IF;
        END IF;
    END LOOP;

    FOR i IN 1 .. coalesce(array_length(branch_ids, 1), 0) LOOP
        INSERT INTO {schema}.branches VALUES (
            high | nextval('{schema}.branch_numbers'), branch_ids[i], of_lineage, branch_threads[i], branch_owners[i],
            nullif(branch_origins[i], ''), branch_origin_steps[i], branch_seals[i]
        ) ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN PERFORM {schema}.refuse('branch', encode(branch_ids[i], 'hex')); END IF;
    END LOOP;

    FOR i IN 1 .. coalesce(array_length(row_steps, 1), 0) LOOP
        IF i = 1 OR row_branches[i] <> row_branches[i - 1] THEN
            numbers := array_append(
                numbers, (SELECT n FROM {schema}.branches WHERE id = row_branches[i] AND lineage = of_lineage)
            );
            IF numbers[i] IS NULL THEN PERFORM {schema}.refuse('gone', encode(row_branches[i], 'hex')); END IF;
        ELSE
            numbers := array_append(numbers, numbers[i - 1]);
        END IF;
        INSERT INTO {schema}.steps VALUES (numbers[i], row_steps[i], row_ids[i], row_metas[i], row_digests[i])
            ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            PERFORM {schema}.refuse('step', encode(row_branches[i], 'hex') || ' ' || row_steps[i]);
        END IF;
    END LOOP;
    IF row_steps[1] IS NOT NULL THEN
        INSERT INTO {schema}.bodies SELECT * FROM unnest(numbers, row_steps, row_roots, row_payloads);
    END IF;

    FOR i IN 1 .. coalesce(array_length(mark_steps, 1), 0) LOOP
        IF NOT mark_keeps[i] THEN
            DELETE FROM {schema}.marks m USING {schema}.branches b
                WHERE b.id = mark_branches[i] AND b.lineage = of_lineage AND m.n = b.n AND m.step = mark_steps[i];
        ELSE
            INSERT INTO {schema}.marks
                SELECT n, mark_steps[i], mark_datas[i] FROM {schema}.branches
                WHERE id = mark_branches[i] AND lineage = of_lineage
                ON CONFLICT (n, step) DO UPDATE SET data = excluded.data;
        END IF;
    END LOOP;

    IF blob_ids[1] IS NOT NULL THEN
        -- always in the same order: two commits with the same blobs must not deadlock
        INSERT INTO {schema}.blobs
            SELECT of_lineage, id, data FROM unnest(blob_ids, blob_datas) AS given (id, data) ORDER BY id
            ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS more_blobs = ROW_COUNT;
    END IF;

    PERFORM {schema}.add_to_counts(
        more_threads, coalesce(array_length(branch_ids, 1), 0), coalesce(array_length(row_steps, 1), 0), more_blobs
    );
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.drop(
    of_lineage text,
    head_threads text[], head_branches bytea[], head_steps bigint[], head_versions bigint[],
    row_branches bytea[], row_steps bigint[], body_branches bytea[], body_steps bigint[],
    branch_ids bytea[], blob_ids bytea[]
) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    numbers bigint[];
    fewer_branches bigint := 0;
    fewer_rows bigint := 0;
    fewer_blobs bigint := 0;
    deleted bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(of_lineage, 0));
    PERFORM FROM {schema}.heads WHERE lineage = of_lineage ORDER BY thread FOR UPDATE;
    IF EXISTS (
        SELECT FROM (SELECT thread, branch, step, version FROM {schema}.heads WHERE lineage = of_lineage) AS there
        FULL JOIN unnest(head_threads, head_branches, head_steps, head_versions)
            AS seen (thread, branch, step, version) USING (thread, branch, step, version)
        WHERE there IS NULL OR seen IS NULL
    ) THEN
        PERFORM {schema}.refuse('swept', of_lineage);
    END IF;

    IF row_steps[1] IS NOT NULL THEN
        WITH gone AS (
            SELECT b.n, r.step FROM unnest(row_branches, row_steps) AS r (id, step)
            JOIN {schema}.branches b ON b.id = r.id AND b.lineage = of_lineage
        ), marked AS (
            DELETE FROM {schema}.marks USING gone WHERE marks.n = gone.n AND marks.step = gone.step
        ), bodied AS (
            DELETE FROM {schema}.bodies USING gone WHERE bodies.n = gone.n AND bodies.step = gone.step
        )
        DELETE FROM {schema}.steps USING gone WHERE steps.n = gone.n AND steps.step = gone.step;
        GET DIAGNOSTICS fewer_rows = ROW_COUNT;
    END IF;

    IF body_steps[1] IS NOT NULL THEN
        UPDATE {schema}.bodies SET root = '', payload = ''
            FROM unnest(body_branches, body_steps) AS r (id, step)
            JOIN {schema}.branches b ON b.id = r.id AND b.lineage = of_lineage
            WHERE bodies.n = b.n AND bodies.step = r.step;
    END IF;

    IF branch_ids[1] IS NOT NULL THEN
        numbers := ARRAY(SELECT n FROM {schema}.branches WHERE id = ANY (branch_ids) AND lineage = of_lineage);
        DELETE FROM {schema}.marks WHERE n = ANY (numbers);
        DELETE FROM {schema}.bodies WHERE n = ANY (numbers);
        DELETE FROM {schema}.steps WHERE n = ANY (numbers);
        GET DIAGNOSTICS deleted = ROW_COUNT;
        fewer_rows := fewer_rows + deleted;
        DELETE FROM {schema}.branches WHERE n = ANY (numbers);
        GET DIAGNOSTICS fewer_branches = ROW_COUNT;
    END IF;

    DELETE FROM {schema}.blobs WHERE lineage = of_lineage AND id = ANY (blob_ids);
    GET DIAGNOSTICS fewer_blobs = ROW_COUNT;
    PERFORM {schema}.add_to_counts(0, -fewer_branches, -fewer_rows, -fewer_blobs);
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.now_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $body$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$body$;

-- The owner of the lease after this call: the caller (given is true), or the one who had it.
CREATE OR REPLACE FUNCTION {schema}.lease(
    lease_name text, asker text, ttl bigint,
    OUT given boolean, OUT has text, OUT its_token bigint, OUT until bigint
)
LANGUAGE plpgsql AS $body$
DECLARE
    now_us constant bigint := {schema}.now_us();
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(lease_name, 1));
    INSERT INTO {schema}.leases AS l VALUES (lease_name, asker, 1, now_us + ttl)
    ON CONFLICT (name) DO UPDATE SET
        token = CASE WHEN l.owner = asker AND l.expires > 0 THEN l.token ELSE l.token + 1 END,  -- 0: it was released
        owner = asker,
        expires = now_us + ttl
        WHERE l.owner = asker OR l.expires <= now_us
    RETURNING true, l.owner, l.token, l.expires INTO given, has, its_token, until;
    IF given IS NULL THEN
        SELECT false, owner, token, expires INTO given, has, its_token, until FROM {schema}.leases WHERE name = lease_name;
    END IF;
END
$body$;

-- Functions, because a session keeps their plans: planning these joins takes longer than running them.
CREATE OR REPLACE FUNCTION {schema}.tip(of_thread text) RETURNS TABLE (
    h {schema}.heads, row_step bigint, row_id bytea, row_meta bytea, row_digest bytea, row_mark bytea, row_root bytea
)
LANGUAGE plpgsql STABLE AS $body$
DECLARE
    head {schema}.heads;
    number bigint;
BEGIN
    SELECT * INTO head FROM {schema}.heads WHERE thread = of_thread;
    IF NOT FOUND THEN RETURN; END IF;
    -- By number and step, not by a join: where most branches are short, a join would read all steps of this one.
    SELECT n INTO number FROM {schema}.branches WHERE id = head.branch;
    RETURN QUERY
        SELECT head, s.step, s.id, s.meta, s.digest, m.data, r.root
        FROM (SELECT) AS one
        LEFT JOIN {schema}.steps s ON s.n = number AND s.step = head.step
        LEFT JOIN {schema}.bodies r ON r.n = number AND r.step = head.step
        LEFT JOIN {schema}.marks m ON m.n = number AND m.step = head.step;
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.light_row(of_lineage text, of_branch bytea, at_step bigint) RETURNS TABLE (
    row_step bigint, row_id bytea, row_meta bytea, row_digest bytea, row_mark bytea, row_root bytea
)
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN QUERY
        SELECT s.step, s.id, s.meta, s.digest, m.data, r.root
        FROM {schema}.branches b
        JOIN {schema}.steps s ON s.n = b.n
        LEFT JOIN {schema}.bodies r ON r.n = s.n AND r.step = s.step
        LEFT JOIN {schema}.marks m ON m.n = s.n AND m.step = s.step
        WHERE b.id = of_branch AND b.lineage = of_lineage AND s.step = at_step;
END
$body$;

-- In these functions, a name without a schema is PostgreSQL's own, whatever somebody has put into `public`.
DO $body$
DECLARE
    each_function regprocedure;
BEGIN
    FOR each_function IN SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = {schema_name}::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', each_function);
    END LOOP;
END
$body$;
