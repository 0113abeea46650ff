-- The tables of a store. {schema} is the schema's name, quoted.
--
-- A branch has a number, n: fifteen bits made from the name of its lineage, then forty-eight that count. So rows are
-- keyed by two integers, lie together by lineage, and can be partitioned by ranges of n: one lineage, one partition.

CREATE TABLE {schema}.store (
    format integer NOT NULL
);

CREATE SEQUENCE {schema}.branch_numbers AS bigint MAXVALUE 281474976710655;

CREATE TABLE {schema}.branches (
    n           bigint PRIMARY KEY,
    id          bytea NOT NULL UNIQUE,
    lineage     text COLLATE "C" NOT NULL,
    thread      text COLLATE "C" NOT NULL,
    owner       bytea NOT NULL,
    origin      bytea,
    origin_step bigint,
    seal        bytea NOT NULL
);
CREATE INDEX branches_lineage ON {schema}.branches (lineage);

-- The light half of each row, apart from the heavy one: history never touches a page with payloads.
CREATE TABLE {schema}.steps (
    n      bigint NOT NULL,
    step   bigint NOT NULL,
    id     bytea NOT NULL,
    meta   bytea NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (n, step)
);
-- Ids grow with time, so this index grows at its end.
CREATE INDEX steps_id ON {schema}.steps (id);

-- Payloads are framed, and compressed if that pays, before they come here: pglz would gain nothing.
-- Up to half a page they stay in the row, which saves a lookup for each of them when a state is loaded.
CREATE TABLE {schema}.bodies (
    n       bigint NOT NULL,
    step    bigint NOT NULL,
    root    bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (n, step)
) WITH (toast_tuple_target = 4080);
ALTER TABLE {schema}.bodies ALTER COLUMN root SET STORAGE EXTERNAL, ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE {schema}.marks (
    n    bigint NOT NULL,
    step bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (n, step)
);

-- Heads change with every commit: room in the page, few indexes, and none on what moves. A listing by age goes through
-- periods of four seconds, so that an update by a thread that is saved often changes no index, and sorts within one: it
-- reads as many heads as were saved in that time, however many there are.
CREATE TABLE {schema}.heads (
    thread  text COLLATE "C" PRIMARY KEY,
    lineage text COLLATE "C" NOT NULL,
    owner   bytea NOT NULL,
    branch  bytea NOT NULL,
    step    bigint NOT NULL,
    version bigint NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    count   bigint NOT NULL,
    size    bigint NOT NULL,
    note    bytea NOT NULL,
    period  bigint NOT NULL GENERATED ALWAYS AS (updated >> 22) STORED
) WITH (fillfactor = 70);
CREATE INDEX heads_lineage ON {schema}.heads (lineage, thread);
CREATE INDEX heads_kind ON {schema}.heads (kind, thread);
CREATE INDEX heads_age ON {schema}.heads (kind, period);
-- The same for each namespace. Names in one begin with the last code point of Unicode, and it ends with an \x1f.
CREATE INDEX heads_namespace_age ON {schema}.heads (split_part(thread, E'\x1f', 1), kind, period)
    WHERE thread >= E'\U0010FFFF';

CREATE TABLE {schema}.blobs (
    lineage text COLLATE "C" NOT NULL,
    id      bytea NOT NULL,
    data    bytea NOT NULL,
    PRIMARY KEY (lineage, id)
);
ALTER TABLE {schema}.blobs ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE {schema}.leases (
    name    text COLLATE "C" PRIMARY KEY,
    owner   text NOT NULL,
    token   bigint NOT NULL,
    expires bigint NOT NULL
);

-- The numbers of all records are the sums of these columns. A commit adds a row with what it adds and deletes, so that
-- no two writers wait for each other; fold_counts() now and then replaces the rows by their sum.
CREATE TABLE {schema}.counts (
    threads  bigint NOT NULL,
    branches bigint NOT NULL,
    rows     bigint NOT NULL,
    blobs    bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

INSERT INTO {schema}.store (format) VALUES (0);
