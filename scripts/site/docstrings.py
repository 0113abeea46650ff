"""The text of our docstrings and comments, as Markdown.

Docstrings have examples without a fence: a paragraph that is indented, or that is Python with a call or an assignment
in it, is shown as code. Prose does not parse as Python. Fields are described by a comment behind them, `#: …`.
"""

from __future__ import annotations

import ast
import re
import textwrap


def fenced(text: str) -> str:
    """The text of a docstring, with fences around its examples."""
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", text))


def _paragraph(text: str) -> str:
    code = textwrap.dedent(text).strip("\n")
    return f"```python\n{code}\n```" if _is_python(code) or re.match(r" {4}", text) else text


def _is_python(text: str) -> bool:
    try:
        parsed = ast.parse(text)
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call | ast.Assign | ast.Import | ast.ImportFrom) for node in ast.walk(parsed))


def comment_of(line: str) -> str | None:
    """What a field's comment says, if it has one."""
    _, mark, text = line.partition("#:")
    return text.strip() if mark else None
