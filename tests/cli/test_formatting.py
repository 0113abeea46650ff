"""Sizes, ages and stored text for a terminal."""

from __future__ import annotations

import datetime as dt

from backtrail.cli.formatting import age, one_line, safe, size


def test_sizes_ages_and_control_characters_are_readable() -> None:
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
    assert safe("bad\udcff.txt") == "bad\N{REPLACEMENT CHARACTER}.txt"
    assert one_line(" a\n b\r") == "a b␍"
