"""Stored text without control characters: it must not steer a terminal, nor look like other text."""

from __future__ import annotations


def _escape(code: int) -> str:
    """A character as JSON writes it in escapes."""
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


_CONTROL = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
# Characters that turn the direction of text, end a line or are not seen could make a name look like another.
_UNSEEN = [0x061C, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x206A), 0xFEFF]
_UNSEEN += [*range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080)]
_CONTROL |= dict.fromkeys(_UNSEEN, "\N{REPLACEMENT CHARACTER}")
_CONTROL |= dict.fromkeys(range(0x7F, 0xA0), "\N{SYMBOL FOR DELETE}")
# Halves of a surrogate pair, and bytes of a file name that are not UTF-8: no terminal can be sent them as text.
_CONTROL |= dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
_IN_JSON = {code: _escape(code) for code in _CONTROL if code >= 0x7F}


def safe(text: str) -> str:
    """Replace control characters by visible symbols: stored text must not steer the terminal."""
    return text.translate(_CONTROL)


def safe_json(text: str) -> str:
    """JSON text that means the same and holds no control characters: they are written as escapes."""
    return text.translate(_IN_JSON)


def one_line(text: str) -> str:
    """`safe` text on one line."""
    return " ".join(safe(text).split())
