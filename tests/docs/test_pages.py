"""The pages: every public name is documented, and every link, module, path, variable and option they name exists."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
from collections import Counter
from pathlib import Path

import click
import pytest

import backtrail
import backtrail.errors
from backtrail.cli.main import backtrail as group
from backtrail.janitor import Janitor

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, ROOT / "CHANGELOG.md"]
TEXT = "\n".join(page.read_text() for page in PAGES)
#: Pages that only the site has; scripts/site makes them.
GENERATED = {"docs/reference/commands.md", "docs/reference/http.md"}
NO_COMMANDS = ("ring 1",)  # the first line of a key ring
NOUNS = [
    backtrail.Store,
    backtrail.Thread,
    backtrail.Session,
    backtrail.Run,
    backtrail.Workspace,
    Janitor,
    backtrail.Autosave,
]
ERRORS = [
    name
    for name, value in vars(backtrail.errors).items()
    if inspect.isclass(value) and value.__module__ == "backtrail.errors"
]
# Dotted names in code that are no Python: files, host names and metrics.
NOT_PYTHON = re.compile(
    r"backtrail\.(db|json|example\.com|mirror\.(lag|changes)|retr(y|ies)|conflicts|step|commit\.refusals"
    r"|operation\.(name|duration)|save(\.written)?|load|find|history|diff|fork|rewind|undo|redo|annotate|delete)$"
)


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: str(noun.__name__))
def test_every_call_is_documented(noun: type) -> None:
    for name in dir(noun):
        if not name.startswith("_"):
            assert re.search(rf"`(?:\w+\.)*{name}\b|\.{name}\b", TEXT), f"{noun.__name__}.{name} is in no page"


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_documented_with_its_attributes(name: str) -> None:
    line = re.search(rf"^\| `{name}` \|.*$|`backtrail\.{name}`", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    assert line is not None
    takes = inspect.signature(getattr(backtrail.errors, name).__init__).parameters
    for fact in {"thread_id", "path", "reason", "where", "extra", "owner"} & set(takes):
        assert f"`{fact}`" in line[0] or name in ("AmbiguousCheckpoint", "LockLost"), fact


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _without_code_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes: of headings with the same text, the second gets -1, the third -2."""
    seen: Counter[str] = Counter()
    anchors = set()
    for title in re.findall(r"^#+ (.+)$", _without_code_blocks(page.read_text()), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


@pytest.mark.parametrize("page", LINKED, ids=_name)
def test_every_link_and_picture_leads_somewhere(page: Path) -> None:
    text = _without_code_blocks(page.read_text())
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    for target in targets:
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if there.relative_to(ROOT).as_posix() in GENERATED:
            continue
        assert there.exists(), target
        assert not anchor or anchor in _anchors(there), target


def test_the_figures_of_the_readme_are_those_of_the_comparison() -> None:
    def table(page: str) -> list[str]:
        text = (ROOT / page).read_text().replace("`", "")
        found = re.search(r"^\| \| a save at step 1,600 \|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
        assert found is not None, page
        return found[1].splitlines()

    assert table("README.md") == table("docs/comparison.md")


def test_every_page_is_reached_from_the_first() -> None:
    """README.md leads to the first page of the site, and that to all others, for those who read them without a site."""
    assert "(docs/index.md" in (ROOT / "README.md").read_text()
    first = (ROOT / "docs/index.md").read_text()
    for page in PAGES[1:]:
        path = page.relative_to(ROOT / "docs").as_posix()
        assert path == "index.md" or f"({path})" in first, f"docs/index.md does not lead to {path}"


def _code(text: str) -> str:
    """Inline code and Python blocks of a page."""
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", _without_code_blocks(text))])


def _exists(dotted: str) -> bool:
    """True if `dotted` is a module of ours or a name in one. The source answers for a module whose extra is missing."""
    names = dotted.split(".")
    path, depth = ROOT / "src" / names[0], 1
    while depth < len(names) and ((path / names[depth]).is_dir() or (path / f"{names[depth]}.py").exists()):
        path, depth = path / names[depth], depth + 1
    if depth == len(names):
        return True
    try:
        return hasattr(importlib.import_module(".".join(names[:depth])), names[depth])
    except ImportError:
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        return re.search(rf"\b{names[depth]}\b", source.read_text()) is not None


@pytest.mark.parametrize("page", LINKED, ids=_name)
def test_every_module_and_source_path_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    for dotted in re.findall(r"(?<![\w./+-])backtrail(?:\.\w+)+", _code(text)):
        assert NOT_PYTHON.match(dotted) or _exists(dotted), dotted
    for path in re.findall(r"(?<![\w/])src/[\w./-]*\w", text):
        assert (ROOT / path).exists(), path


def test_the_environment_variables_in_the_docs_are_those_in_the_code() -> None:
    variable = re.compile(r"(?<![A-Z_])BACKTRAIL_[A-Z_]*[A-Z]")
    sources = (path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert set(variable.findall(TEXT)) == {name for source in sources for name in variable.findall(source)}


def _options(command: click.Command) -> set[str]:
    members = command.commands.values() if isinstance(command, click.Group) else ()
    own = {option for p in command.params for option in [*p.opts, *p.secondary_opts]}
    return own.union(*map(_options, members))


SECTIONS = re.findall(
    r"^### `backtrail (\w+)(.*?)(?=^##|\Z)", (ROOT / "docs/cli.md").read_text(), re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize(("name", "section"), SECTIONS, ids=[name for name, _ in SECTIONS])
def test_every_command_and_option_in_the_docs_exists(name: str, section: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None, name
    for row in re.findall(r"^\| (`-.*?) \|", section, re.MULTILINE):
        for option in re.findall(r"`(--?[\w-]+)", row):
            assert option in _options(command), f"backtrail {name} {option}"
    for member in re.findall(rf"^- `backtrail {name} (\w+)", section, re.MULTILINE):
        assert isinstance(command, click.Group)
        assert member in command.commands, f"backtrail {name} {member}"


def _invocations(text: str) -> list[list[str]]:
    """The words after `backtrail` of each command in inline code and in consoles, without options of the group."""
    inline = re.findall(r"`backtrail ((?:-s \S+ )?[a-z]+(?: [^`]*)?)`", _without_code_blocks(text))
    typed = re.findall(r"^\$ (?:\w+=\S+ )*backtrail (.+)$", text, re.MULTILINE)
    lines = [re.split(r"\s{2,}|\s[|>&#]", line)[0] for line in (*inline, *typed) if not line.startswith(NO_COMMANDS)]
    return [shlex.split(re.sub(r"^(-s \S+|--json)\s+", "", line)) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_that_a_page_names_exists_with_its_options_and_arguments(page: Path) -> None:
    for name, *words in _invocations(page.read_text()):
        if name.startswith("-"):
            continue
        command = group.get_command(click.Context(group), name)
        assert command is not None, f"backtrail {name}"
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", f" {' '.join(words)}"):
            assert option in _options(command) | _options(group), f"backtrail {name} {words}"
        while words and isinstance(command, click.Group) and words[0] in command.commands:
            command, words = command.commands[words[0]], words[1:]
        assert "unexpected extra argument" not in _refusal(command, words), f"backtrail {name} {words}"


def _refusal(command: click.Command, words: list[str]) -> str:
    """Why the command refuses these words; nothing if it takes them."""
    try:
        command.make_context(command.name, list(words))
    except click.UsageError as error:
        return error.message
    except click.exceptions.Exit:  # --help
        return ""
    return ""
