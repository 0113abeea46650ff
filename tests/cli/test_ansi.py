"""ANSI lines: cut at the width of the terminal, whatever width their characters have."""

from __future__ import annotations

import pytest

from backtrail.cli.ansi import Span, _colour, _truncate


@pytest.mark.parametrize(
    ("spans", "columns", "cut"),
    [
        ([Span("short")], 10, "short"),
        ([Span("exactly ten")], 11, "exactly ten"),
        ([Span("abc"), Span("defgh")], 6, "abcde…"),
        ([Span("日本語テキスト")], 7, "日本語…"),
        ([Span("e\N{COMBINING ACUTE ACCENT}" * 5)], 5, "e\N{COMBINING ACUTE ACCENT}" * 5),
    ],
)
def test_a_line_fits_its_terminal(spans: list[Span], columns: int, cut: str) -> None:
    assert "".join(span.text for span in _truncate(spans, columns)) == cut


def test_a_style_starts_before_its_text_and_ends_after_it() -> None:
    assert _colour(Span("12", "step dim")) == "\x1b[1;36;2m12\x1b[0m"
    assert _colour(Span("plain")) == "plain"
