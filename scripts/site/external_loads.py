"""Finds what a browser would fetch from another host when it shows a page: a site must work without a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_ELSEWHERE = re.compile(r"\s*(https?:)?//")
_NOT_FETCHED = {"canonical", "prev", "next", "alternate"}


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        fetched = [given.get("src"), given.get("srcset"), given.get("poster")]
        if tag == "link" and given.get("rel") not in _NOT_FETCHED:
            fetched.append(given.get("href"))
        if tag in ("object", "use", "image"):
            fetched += [given.get("data"), given.get("href"), given.get("xlink:href")]
        self.found += [one for one in fetched if one and _ELSEWHERE.match(one)]


def of_page(html: str) -> list[str]:
    """What this page would fetch from elsewhere, its own styles included."""
    parser = _Loads()
    parser.feed(html)
    return parser.found + of_style("\n".join(re.findall(r"<style.*?</style>", html, re.DOTALL)))


def of_style(css: str) -> list[str]:
    """What this style sheet would fetch from elsewhere."""
    found = re.findall(r"(?:@import\s+|url\(\s*)[\"']?((?:https?:)?//[^\"')\s;]+)", css)
    return [str(url) for url in found]
