"""The script of a shared page, as one text: the modules of the inspector that it needs, put together.

A file that opens offline cannot import, so each module becomes a function that returns what it exports. The modules are
our own and two vendored ones; a form of import or export that is not known here is an error, not a guess.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath

_STATIC = Path(__file__).parent / "static"
_ENTRY = "shared-page.js"
_IMPORT = re.compile(r'^import (?:\{([^}]*)\}|(\w+)) from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const|let) ([\w$]+))", re.MULTILINE)
_DEFAULT = re.compile(r"^export default (\w+);\n?", re.MULTILINE)
_LIST = re.compile(r"\bexport\{([^}]*)\};?")
_LEFT = re.compile(r"^(?:import|export)\b", re.MULTILINE)
_ENDS_SCRIPT = re.compile(r"<(?=!--|/?script)", re.IGNORECASE)  # would change how a browser reads the rest of the page


@cache
def shared_page_script() -> str:
    """The text of the script; it can stand inside of a script element."""
    modules: dict[str, str] = {}  # name -> variable, in the order in which they are needed
    parts: list[str] = []
    _add(_ENTRY, modules, parts)
    text = '"use strict";\n' + "\n".join(parts)
    return _ENDS_SCRIPT.sub(r"\\x3c", text)  # inside of a string or a pattern, this is the same character


def _add(name: str, modules: dict[str, str], parts: list[str]) -> str:
    """Add a module after those that it imports; returns the variable that holds its exports."""
    if name in modules:
        return modules[name]
    text = (_STATIC / name).read_text("utf-8")
    folder = PurePosixPath(name).parent
    bound = []
    for names, default, source in _IMPORT.findall(text):
        variable = _add(str(folder / source), modules, parts)
        taken = f"default: {default}" if default else names.replace(" as ", ": ").strip()
        bound.append(f"const {{ {taken} }} = {variable};")
    body = _IMPORT.sub("", text)
    given = [f"{own}" for own in _EXPORT.findall(body)]
    given += [f"default: {own}" for own in _DEFAULT.findall(body)]
    for listed in _LIST.findall(body):
        pairs = (one.strip().partition(" as ") for one in listed.split(","))
        given += [f"{public or own}: {own}" for own, _, public in pairs]
    body = _LIST.sub("", _DEFAULT.sub("", _EXPORT.sub("", body)))
    if (left := _LEFT.search(body)) is not None:
        line = body[left.start() :].splitlines()[0]
        raise ValueError(f"{name} has a line that a shared page cannot have: {line[:80]}")
    variable = modules[name] = f"module{len(modules)}"
    parts.append(f"const {variable} = (() => {{\n{''.join(bound)}\n{body}\nreturn {{ {', '.join(given)} }};\n}})();")
    return variable
