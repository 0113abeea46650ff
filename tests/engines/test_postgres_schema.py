"""A PostgreSQL schema in which somebody put code of their own is refused, and nothing in `public` is ever called."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from backtrail.engines.postgres import PostgresEngine
from backtrail.errors import UnsupportedFormat
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step
from backtrail.testing.servers import PostgresServer

_NUMBERS = itertools.count()
_EMPTIES = """
CREATE FUNCTION public.empties() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN DELETE FROM {0}.steps; RETURN NULL; END $$;
CREATE TRIGGER empties AFTER INSERT ON {0}.steps EXECUTE FUNCTION public.empties()"""

STRANGE = {
    "a trigger": (_EMPTIES, "trigger 'empties'"),
    "a view": ("CREATE VIEW {0}.look AS SELECT * FROM {0}.heads", "view or foreign table 'look'"),
    "a rule": ("CREATE RULE lose AS ON INSERT TO {0}.blobs DO INSTEAD NOTHING", "rule 'lose'"),
    "a policy": ("CREATE POLICY hide ON {0}.heads USING (false)", "policy 'hide'"),
    "another function": ("CREATE FUNCTION {0}.more() RETURNS int LANGUAGE sql AS 'SELECT 1'", "function 'more'"),
    "our function with another body": (
        "CREATE OR REPLACE FUNCTION {0}.now_us() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
        "function 'now_us'",
    ),
    "a function too few": ("DROP FUNCTION {0}.now_us", "function 'now_us'"),
}


@pytest.fixture
def schema() -> str:
    return f"strange_{next(_NUMBERS)}"


@pytest.fixture
def admin(postgres_server: PostgresServer, schema: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    engine = PostgresEngine(postgres_server.url, schema=schema)
    step(engine.commit(sample_records.first(sample_records.branch("t"))))
    step(engine.close())
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        yield connection
        connection.execute("DROP FUNCTION IF EXISTS public.empties CASCADE")


@pytest.mark.parametrize("what", STRANGE)
def test_an_object_that_is_not_ours_is_refused_and_named(
    what: str, postgres_server: PostgresServer, schema: str, admin: psycopg.Connection[Any]
) -> None:
    script, message = STRANGE[what]
    admin.execute(script.format(schema).encode())
    engine = PostgresEngine(postgres_server.url, schema=schema)
    for _ in range(2):  # also the second time
        with pytest.raises(UnsupportedFormat, match=message):
            step(engine.commit(sample_records.first(sample_records.branch("u"))))
    step(engine.close())
    assert admin.execute(f"SELECT thread FROM {schema}.heads".encode()).fetchall() == [("t",)]


def test_every_function_looks_for_names_in_the_catalogue_only(schema: str, admin: psycopg.Connection[Any]) -> None:
    query = "SELECT DISTINCT proconfig FROM pg_proc WHERE pronamespace = %s::regnamespace"
    assert admin.execute(query, [schema]).fetchall() == [(["search_path=pg_catalog, pg_temp"],)]
