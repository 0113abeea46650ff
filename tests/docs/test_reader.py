"""The reader of pages notices what is not as a page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fix_reader import Reader, blocks, commands, matches

PAGE = """# A page

```python title="greet.py"
import sys

print("hello", sys.argv[1])
```

```console
$ export NAME=ann
$ python greet.py $NAME
hello ann
$ echo one; \\
    echo two
one
two
```

```python
from pathlib import Path

assert Path("greet.py").exists()
```
"""


def read(text: str, folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(text)
    Reader(folder / "reader").read(page)


def test_files_are_written_commands_typed_in_one_shell_and_python_run(tmp_path: Path) -> None:
    read(PAGE, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("hello ann\n", "hello bob\n"),  # another output
        ("hello ann\n", ""),  # an output that is not shown
        ("two\n```", "two\nthree\n```"),  # a line too many
        ("one\ntwo\n```", "one\ntwo\n$ false\n```"),  # a command that fails without a word
        ("assert Path", "assert not Path"),
        ("```console", "```terminal"),  # a block that nobody runs
        ("```console", "```console numbered"),  # and words that nobody reads
    ],
)
def test_a_page_that_is_wrong_fails(right: str, wrong: str, tmp_path: Path) -> None:
    assert right in PAGE
    with pytest.raises(AssertionError):
        read(PAGE.replace(right, wrong), tmp_path)


def test_an_address_that_a_page_does_not_have_is_not_replaced_in_silence(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    with pytest.raises(AssertionError, match=r"redis://x"):
        Reader(tmp_path / "reader").read(page, {"redis://x": "redis://y"})


def test_ids_ages_seconds_and_columns_differ_and_everything_else_does_not() -> None:
    shown = "shop  01a1ef26-5ae  12s ago  0.004  1.5 kB"
    assert matches(shown, "shop    01a1ef99-1c2d-70f8  3m ago   12.345  1.5 kB\n")
    assert not matches(shown, "shop 01a1ef26-5ae 12s ago 0.004 1.6 kB")
    assert matches("a … d", "a b\nc d")
    assert not matches("a … d", "a b c")


def test_blocks_have_their_line_and_commands_their_output() -> None:
    assert [(block.language, block.title, block.line) for block in blocks(PAGE)] == [
        ("python", "greet.py", 3),
        ("console", None, 9),
        ("python", None, 19),
    ]
    assert commands("$ a\n1\n2\n$ b \\\n  c\n") == [("a", "1\n2\n"), ("b \\\n  c", "")]
