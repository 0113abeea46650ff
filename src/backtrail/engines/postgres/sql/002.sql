-- Heads change with every commit: no index on what moves. A listing by age goes through minutes (of 67 seconds), which
-- seldom change, and sorts within one.
DROP INDEX {schema}.heads_age;
ALTER TABLE {schema}.heads ADD COLUMN minute bigint NOT NULL GENERATED ALWAYS AS (updated >> 26) STORED;
CREATE INDEX heads_age ON {schema}.heads (kind, minute);

-- It has more arguments now, and would stand beside itself. A store that is new never had it.
DROP FUNCTION IF EXISTS {schema}.append(
    text, text, bytea, bigint, bigint, bytea, bytea, bigint, bigint, text, bigint, bigint, bigint, bigint, bytea,
    bytea, bigint, bytea, bytea, bytea, bytea, bytea
);
