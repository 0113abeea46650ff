"""The site: every page has its place in it, its versions are pinned, and it would load nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import backtrail
import backtrail.errors
from scripts.site import diagrams, external_loads
from scripts.site.command_page import command_page
from scripts.site.docstrings import comment_of, fenced
from scripts.site.http_page import http_page
from scripts.site.links import lead_links

ROOT = Path(__file__).parents[2]
CONFIG = (ROOT / "mkdocs.yml").read_text()
NAV = re.findall(r"^\s+- (?:[^:\n]+: )?([\w/-]+\.md)$", CONFIG.partition("\nnav:")[2], re.MULTILINE)
MADE = {"reference/commands.md", "reference/http.md", "changelog.md", "contributing.md", "reporting.md", "license.md"}


def test_every_page_stands_in_the_navigation_once() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(NAV) == len(set(NAV))
    assert pages <= set(NAV)
    assert set(NAV) >= MADE


def test_every_public_name_is_in_the_reference() -> None:
    shown = "".join(path.read_text() for path in (ROOT / "docs/reference").glob("*.md"))
    errors = set(vars(backtrail.errors))
    for name in set(backtrail.__all__) - errors:
        assert re.search(rf"^::: backtrail\.{name}$", shown, re.MULTILINE), name
    for name in backtrail.aio.__all__:
        assert re.search(rf"^::: backtrail\.aio\.{name}$", shown, re.MULTILINE), name
    assert "::: backtrail.errors\n" in shown


def test_versions_of_the_tools_are_pinned() -> None:
    wanted = re.findall(r"^([\w.-]+)(?:\[\w+\])?==", (ROOT / "scripts/site/requirements.txt").read_text(), re.MULTILINE)
    pinned = re.findall(r"^([\w.-]+)==\S+$", (ROOT / "scripts/site/constraints.txt").read_text(), re.MULTILINE)
    assert {"mkdocs-material", "mkdocstrings"} <= set(wanted) <= set(pinned)
    assert "mkdocs" in pinned


def test_every_diagram_is_drawn_and_no_drawing_is_left_over() -> None:
    drawn = {diagrams.path_of(source) for source in diagrams.sources()}
    assert drawn == set(diagrams.DRAWINGS.glob("*.svg")), "run `make diagrams`"


def test_drawings_load_nothing_and_have_the_colours_of_the_site() -> None:
    for path in diagrams.DRAWINGS.glob("*.svg"):
        text = path.read_text()
        assert "<script" not in text
        assert "@import" not in text
        assert set(re.findall(r"https?://[^\s\"<)]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert "var(--diagram-text)" in text


def test_the_page_of_commands_has_each_of_them_with_its_options() -> None:
    page = command_page()
    assert "### `backtrail rewind`" in page
    assert "#### `backtrail agents install`" in page
    assert re.search(r"^\| `-n, --dry-run` \| .+ \|$", page, re.MULTILINE)


def test_the_page_of_http_operations_leads_to_each_shape_it_names() -> None:
    page = http_page()
    anchors = set(re.findall(r"\{ #([\w-]+) \}", page))
    named = set(re.findall(r"\]\(#([\w-]+)\)", page))
    assert named <= anchors
    assert "### `POST /api/v1/append`" in page
    assert "| `thread` | string (characters at most 512) | required |" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Saves.\n\nthread.save({})", "Saves.\n\n```python\nthread.save({})\n```"),
        ("Saves.\n\n    thread.save({})\n\nThen more.", "Saves.\n\n```python\nthread.save({})\n```\n\nThen more."),
        ("Only prose (with a remark), and `code`.", "Only prose (with a remark), and `code`."),
        ("One word\n\nAnother", "One word\n\nAnother"),
    ],
)
def test_examples_in_docstrings_get_a_fence(text: str, shown: str) -> None:
    assert fenced(text) == shown


def test_a_field_is_described_by_the_comment_behind_it() -> None:
    assert comment_of("    seconds: float = 300.0  #: of one load") == "of one load"
    assert comment_of("    seconds: float = 300.0  # not for readers") is None


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://unpkg.com/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img srcset="https://example.com/a.png 2x">',
        "<style>@import url('https://example.com/a.css');</style>",
        "<style>body { background: url(https://example.com/a.png) }</style>",
    ],
)
def test_a_page_that_would_load_from_elsewhere_is_found(html: str) -> None:
    assert external_loads.of_page(f"<html>{html}</html>")


def test_links_and_own_files_are_no_loads_from_elsewhere() -> None:
    html = '<a href="https://example.com">x</a><script src="a.js"></script><link rel="canonical" href="https://a.b/c">'
    assert external_loads.of_page(html) == []


def test_links_lead_to_pages_of_the_site_and_code_stays_as_it_is() -> None:
    page = "how-to/notebook.md"
    assert lead_links("[a](../threads.md#save) ![b](../log.svg)", page) == "[a](../threads.md#save) ![b](../log.svg)"
    assert (
        lead_links("[`c`](../../CHANGELOG.md) [d](../../README.md)", page) == "[`c`](../changelog.md) [d](../index.md)"
    )
    assert lead_links("[e](../../Makefile) and `f[0](g.md)`", page) == "e and `f[0](g.md)`"
    block = "```python\nTOOLS[name](**arguments)\n```\n"
    assert lead_links(f"[a](../threads.md)\n\n{block}[d](../../README.md)", page).count(block) == 1
