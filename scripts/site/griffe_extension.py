"""Tells mkdocstrings how our docstrings and the comments behind fields are meant; see `docstrings`."""

from __future__ import annotations

from typing import Any

import griffe

from scripts.site.docstrings import comment_of, fenced


class OurDocstrings(griffe.Extension):
    """Called by griffe for each object that it has read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put fences around the examples."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Take the comment behind a field for its docstring."""
        if attr.docstring is None and attr.lineno and isinstance(attr.parent, griffe.Class):
            lines = attr.lines_collection[attr.filepath][attr.lineno - 1 : attr.endlineno]
            if comment := next((text for line in lines if (text := comment_of(line))), None):
                attr.docstring = griffe.Docstring(comment, parent=attr)
