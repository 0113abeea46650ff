"""Leads the links of a page to pages of the site. A file of the project that is no page is only named."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Files of the project that are pages of the site.
PROJECT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "LICENSE": "license.md",
}
_CODE = r"^ *(?P<fence>`{3,})(?s:.*?)^ *(?P=fence) *$|`[^`\n]+`"  # what looks like a link in it is none
_LINK = r"(?<!!)\[(?P<text>(?:`[^`\n]+`|[^\[\]`]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)"
_PARTS = re.compile(f"{_LINK}|{_CODE}", re.MULTILINE)


def lead_links(markdown: str, page: str) -> str:
    """The text of a page of the site, with links that lead to pages of the site."""
    at = Path() if page in PROJECT_PAGES.values() else Path("docs", page).parent
    up = "../" * (len(Path(page).parts) - 1)
    return _PARTS.sub(lambda part: part[0] if part["target"] is None else _led(part, at, up), markdown)


def _led(link: re.Match[str], at: Path, up: str) -> str:
    text, target = link["text"], link["target"]
    path, mark, anchor = target.partition("#")
    if not path or "://" in path:
        return link[0]
    there = _normal(at / path)
    if there in PROJECT_PAGES:
        return f"[{text}]({up}{PROJECT_PAGES[there]}{mark}{anchor})"
    if there.startswith("docs/"):
        return f"[{text}]({up}{there.removeprefix('docs/')}{mark}{anchor})"
    if there == "README.md":
        return f"[{text}]({up}index.md)"
    if (ROOT / there).exists():
        return text  # a file of the project that is no page
    return link[0]  # MkDocs reports it


def _normal(path: Path) -> str:
    """`docs/../src` as `src`, without looking at the disk."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
