"""The pages: every public name stands in them, every link and picture leads somewhere, every page is reached."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import backtrail
import backtrail.errors
import backtrail.store
from backtrail.janitor import Janitor

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES)
NOUNS = [
    backtrail.Store,
    backtrail.Thread,
    backtrail.Session,
    backtrail.Run,
    backtrail.Workspace,
    Janitor,
    backtrail.store.Autosave,
]
ERRORS = [
    name
    for name, value in vars(backtrail.errors).items()
    if inspect.isclass(value) and value.__module__ == "backtrail.errors"
]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: str(noun.__name__))
def test_every_call_stands_in_the_docs(noun: type) -> None:
    for name in dir(noun):
        if not name.startswith("_"):
            assert re.search(rf"`(?:\w+\.)*{name}\b|\.{name}\b", TEXT), f"{noun.__name__}.{name} is in no page"


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_stands_in_the_docs_with_its_attributes(name: str) -> None:
    line = re.search(rf"^\| `{name}` \|.*$|`backtrail\.{name}`", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    assert line is not None
    takes = inspect.signature(getattr(backtrail.errors, name).__init__).parameters
    for fact in {"thread_id", "path", "reason", "where", "extra", "owner"} & set(takes):
        assert f"`{fact}`" in line[0] or name in ("AmbiguousCheckpoint", "LockLost"), fact


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_every_link_and_picture_leads_somewhere(page: Path) -> None:
    text = page.read_text()
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    for target in targets:
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in _anchors(there), target


def test_every_page_is_reached_from_the_first() -> None:
    first = (ROOT / "README.md").read_text()
    for page in PAGES[1:]:
        assert f"docs/{page.name}" in first, f"README.md does not lead to {page.name}"
