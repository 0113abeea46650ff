"""Lines by hand: cut where the terminal ends, whatever width its characters have."""

from __future__ import annotations

import datetime as dt

import pytest

from backtrail.cli.ansi import Span, _cut, _paint
from backtrail.cli.formatting import age, line, safe, size


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
    assert "".join(span.text for span in _cut(spans, columns)) == cut


def test_a_style_is_put_around_its_text_and_ended() -> None:
    assert _paint(Span("12", "step dim")) == "\x1b[1;36;2m12\x1b[0m"
    assert _paint(Span("plain")) == "plain"


def test_words_for_sizes_ages_and_control_characters() -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    spans = [dt.timedelta(seconds=s) for s in (0, 59, 60, 7200, 86_400 * 3, 86_400 * 40, 86_400 * 800)]
    assert [age(now - span, now) for span in spans] == [
        "just now",
        "59s ago",
        "1m ago",
        "2h ago",
        "3d ago",
        "1mo ago",
        "2y ago",
    ]
    assert [size(n) for n in (0, 999, 1000, 1_500_000, 2 * 10**12)] == ["0 B", "999 B", "1.0 kB", "1.5 MB", "2000.0 GB"]
    assert safe("a\x1b[2J\n\tb\x9b") == "a␛[2J\n\tb␡"
    assert line(" a\n b\r") == "a b␍"
