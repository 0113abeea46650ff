"""The diagrams of the docs: Mermaid in the pages, drawn once, and kept in docs/diagrams under a digest of their text.

A page shows its diagram as text on GitHub, which draws it; the site has the drawing, with the colours of the site as
CSS variables, so that it suits light and dark and needs no script. `python -m scripts.site.diagrams` draws what is new
and removes what is not used any more. It needs playwright, a Chromium and build/mermaid (`make diagrams` fetches it).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRAWINGS = ROOT / "docs/diagrams"
SCRIPT = ROOT / "build/mermaid/mermaid.min.js"
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Stand-ins that Mermaid accepts as colours, and the variables of docs/stylesheets/site.css that they become.
COLOURS = {
    "#010101": "var(--diagram-box)",
    "#020202": "var(--diagram-group)",
    "#030303": "var(--diagram-line)",
    "#040404": "var(--diagram-text)",
    "#050505": "var(--diagram-paper)",
}
BOX, GROUP, LINE, TEXT, PAPER = COLOURS
SETTINGS = {
    "startOnLoad": False,
    "theme": "base",
    "fontFamily": "sans-serif",
    "flowchart": {"htmlLabels": False, "padding": 14, "wrappingWidth": 420},
    "htmlLabels": False,
    "themeVariables": {
        "mainBkg": BOX,
        "primaryColor": BOX,
        "primaryBorderColor": LINE,
        "nodeBorder": LINE,
        "clusterBkg": GROUP,
        "clusterBorder": LINE,
        "lineColor": LINE,
        "textColor": TEXT,
        "primaryTextColor": TEXT,
        "nodeTextColor": TEXT,
        "titleColor": TEXT,
        "edgeLabelBackground": PAPER,
        "background": PAPER,
    },
}


def path_of(source: str) -> Path:
    """The file of the drawing of this text."""
    return DRAWINGS / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.svg"


def drawing_of(source: str) -> str | None:
    """The drawing of this text as SVG; None if it was not drawn."""
    path = path_of(source)
    return path.read_text(encoding="utf-8") if path.exists() else None


def sources() -> list[str]:
    """The text of every diagram in the docs."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [block for page in pages for block in MERMAID.findall(page.read_text(encoding="utf-8"))]


def main() -> None:
    """Draw what is missing."""
    from playwright.sync_api import sync_playwright

    wanted = {path_of(source): source for source in sources()}
    DRAWINGS.mkdir(exist_ok=True)
    for old in set(DRAWINGS.glob("*.svg")) - set(wanted):
        old.unlink()
    browser_path = os.environ.get("BACKTRAIL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<body></body>")
        page.add_script_tag(path=SCRIPT)
        for path, source in wanted.items():
            if not path.exists():
                drawn = page.evaluate(
                    "async ([settings, id, text]) => { mermaid.initialize(settings); "
                    "return (await mermaid.render(id, text)).svg }",
                    [SETTINGS, f"diagram-{path.stem}", source],
                )
                for stand_in, variable in COLOURS.items():
                    red = int(stand_in[1:3], 16)
                    drawn = drawn.replace(stand_in, variable).replace(f"rgb({red}, {red}, {red})", variable)
                path.write_text(drawn + "\n", encoding="utf-8")
        browser.close()


if __name__ == "__main__":
    main()
