"""What MkDocs does for this site beyond its settings, called by MkDocs at each stage of `make docs`.

- Pages that no file has: all commands, all HTTP operations, and the project's own files (changelog, licence, …).
- Links of a page to files outside of docs/ lead to those pages; what is no page of the site is only named.
- Names of tests in tables may break where their parts end.
- Diagrams are drawings of the repository (`make diagrams`), put into the page: no script draws them.
- A picture with a dark variant follows the reader's choice of light and dark.
- A built page that would load anything from elsewhere is an error.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.site import external_loads
from scripts.site.command_page import command_page
from scripts.site.diagrams import MERMAID, drawing_of
from scripts.site.http_page import http_page
from scripts.site.links import PROJECT_PAGES, ROOT, lead_links

_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_LONG_CODE = re.compile(r"<code>[^<]{32,}</code>")
_BREAKS = re.compile(r"(?<=\w)(/|::|_)(?=\w)")
_PICTURE = re.compile(r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img src="([^"]+)" (alt="[^"]*")>\s*</picture>')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file of docs/ has."""
    pages = {"reference/commands.md": command_page(), "reference/http.md": http_page()}
    for source, page in PROJECT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        pages[page] = f"# Licence\n\n```text\n{text}```\n" if source == "LICENSE" else text
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "icon.svg", abs_src_path=str(ROOT / "src/backtrail/server/static/icon.svg")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to the pages of the site, and put the drawings in."""
    markdown = lead_links(markdown, page.file.src_uri)
    markdown = _PICTURE.sub(r'<img src="\2#only-light" \3><img src="\1#only-dark" \3>', markdown)
    return MERMAID.sub(lambda block: _figure(block[1], page), markdown)


def _figure(source: str, page: Page) -> str:
    drawing = drawing_of(source)
    if drawing is None:
        raise PluginError(f"{page.file.src_uri} has a diagram that was not drawn: run `make diagrams`")
    return f'<div class="diagram" markdown="0">\n{drawing}\n</div>'


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let long names in tables break where their parts end, so that a table with names of tests fits a page."""
    return _CELL.sub(lambda cell: _LONG_CODE.sub(lambda code: _BREAKS.sub(r"\1<wbr>", code[0]), cell[0]), html)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that needs the network: the pages, and the styles that they use."""
    site = Path(config.site_dir)
    found = [
        f"{path.relative_to(site)}: {url}"
        for pattern, loads in (("*.html", external_loads.of_page), ("*.css", external_loads.of_style))
        for path in sorted(site.rglob(pattern))
        for url in loads(path.read_text(encoding="utf-8"))
    ]
    if found:
        raise PluginError("the site would load from elsewhere:\n" + "\n".join(found))
