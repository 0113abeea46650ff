"""Small HTML tables for notebooks. Everything in them is escaped text: a stored message is never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"


def html_table(title: str, rows: Iterable[Sequence[object]], heading: Sequence[str] = ()) -> str:
    """A table with a title and, if given, a heading."""
    head = "".join(f'<th style="{_CELL}">{_text(name)}</th>' for name in heading)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL};white-space:pre-wrap">{_text(cell)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<div><b>{_text(title)}</b><table>{top}<tbody>{body}</tbody></table></div>"


def _text(value: object) -> str:
    import html

    return html.escape(str(value).encode("utf-8", "replace").decode("utf-8"))
