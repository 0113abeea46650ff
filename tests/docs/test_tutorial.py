"""The tutorial, read by somebody who does what it says: in one directory, and from its first page on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from backtrail.testing.servers import PostgresServer
from fix_reader import Reader

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
FIRST = TUTORIAL / "index.md"
PAGES = [FIRST, *sorted(TUTORIAL.glob("[0-9]*.md"))]
LAST = PAGES[-1]
SERVER = "postgresql://me:secret@localhost:5432/agents"  # as the last page has it


@pytest.fixture(scope="module")
def read_up_to(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Read the pages up to one; those that were read for another test are not read again."""
    reader, unread = Reader(tmp_path_factory.mktemp("tutorial")), list(PAGES)

    def read(page: Path, **replacing: str) -> None:
        while page in unread:
            reader.read(unread[0], replacing if unread[0] == page else None)
            del unread[0]

    return read


@pytest.mark.slow
@pytest.mark.timeout(900)  # the pages before it are read first
@pytest.mark.parametrize("page", PAGES[:-1], ids=lambda page: page.stem)
def test_a_page_of_the_tutorial_does_what_it_says(page: Path, read_up_to: Callable[..., None]) -> None:
    read_up_to(page)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_last_page_moves_the_agent_to_a_real_server(
    read_up_to: Callable[..., None], postgres_server: PostgresServer
) -> None:
    read_up_to(LAST, **{SERVER: postgres_server.url})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_ends_with_what_was_learnt_and_leads_on(page: Path) -> None:
    following = PAGES[PAGES.index(page) + 1] if page != LAST else None
    text = page.read_text()
    assert page == FIRST or re.search(r"^## What you have learnt$", text, re.MULTILINE)
    if following is not None:
        assert f"]({following.name})" in text.rstrip().splitlines()[-1]
