"""The real programs in a large project with links, a submodule and ignored files, and on disks that are full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .model_server import ModelServer
from .programs import AGENTS, AgentHome
from .test_going_back import MakeHome, backtrail, contents, newest_session, turns_of, without_replies

FOLDERS, FILES = 200, 100
SPOIL = (
    "rm -r src/1*; rm link folder-link dangling; echo now a file > link; mkdir folder-link; echo x > folder-link/made; "
    "rm -r vendor/lib/code.c; echo changed > .env; echo more > node_modules/y.js; echo new > new.txt"
)


def git(folder: Path, *words: str) -> None:
    names = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


def fill(home: AgentHome) -> None:
    """20,000 files, links, a submodule, and files that git ignores."""
    root = home.project
    for folder in range(FOLDERS):
        (root / f"src/{folder}").mkdir(parents=True)
        for number in range(FILES):
            (root / f"src/{folder}/{number}.py").write_text(f"{folder} {number}\n")
    (root / "link").symlink_to("src/1/1.py")
    (root / "folder-link").symlink_to("src/2")
    (root / "dangling").symlink_to("nowhere")
    (root / ".gitignore").write_text("node_modules/\n.env\n")
    (root / "node_modules").mkdir()
    (root / "node_modules/x.js").write_text("ignored\n")
    (root / ".env").write_text("SECRET=1\n")
    library = root.parent / "library"
    library.mkdir()
    (library / "code.c").write_text("code\n")
    for folder, words in ((library, ("init",)), (library, ("add", ".")), (library, ("commit", "-m", "x"))):
        git(folder, *words)
    git(root, "init")
    git(root, "submodule", "add", str(library), "vendor/lib")
    git(root, "add", ".")
    git(root, "commit", "-m", "all")


def tree(root: Path) -> dict[str, str]:
    """Everything in a directory, git's own files too."""
    found = {}
    for folder, names, files in os.walk(root):
        for name in [*files, *(name for name in names if Path(folder, name).is_symlink())]:
            path = Path(folder, name)
            what = f"-> {path.readlink()}" if path.is_symlink() else path.read_bytes().hex()
            found[str(path.relative_to(root))] = what
    return found


@pytest.mark.parametrize("agent", AGENTS)
def test_twenty_thousand_files_with_links_a_submodule_and_ignored_ones_come_back(
    agent: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    fill(home)
    home.prompt(agent, "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    before = tree(home.project)
    home.prompt(agent, f"PROMPT-two RUN:{SPOIL} ENDRUN", session)
    after = tree(home.project)
    assert len(after) < len(before) - 10_000
    done = backtrail(home, "rewind", "2", "--yes")
    assert done["resume"], done["notes"]
    ignored = {name: after[name] for name in (".env", "node_modules/y.js")}
    own = {name: what for name, what in after.items() if name.startswith(".git/")}  # git's own files stay as they are
    kept = {name: what for name, what in before.items() if not name.startswith(".git/")}
    assert tree(home.project) == kept | own | ignored
    git(home.project, "diff", "--exit-code")
    home.prompt(agent, "PROMPT-three", newest_session(home))
    assert without_replies(model.last_shown("PROMPT-three")) == ["PROMPT-one", "ran echo one > a.txt", "PROMPT-three"]
    backtrail(home, "undo", "--yes")
    now = tree(home.project)
    assert {n: w for n, w in now.items() if not n.startswith(".git/")} == {
        n: w for n, w in after.items() if not n.startswith(".git/")
    }


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """A disk of this size in the place of a directory, with what is in that."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder.with_name(f"{folder.name}-kept")
    subprocess.run(["cp", "-a", folder, kept], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """No space is left on the disk of a directory, until the end of the block."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        size = 2**20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    try:
        yield
    finally:
        ballast.unlink()


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_works_on_while_the_disk_of_the_store_is_full(
    agent: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    data = home.home / ".local/share/backtrail"
    with small_disk(data, 24):
        home.prompt(agent, "PROMPT-one RUN:echo one > a.txt ENDRUN")
        session = newest_session(home)
        with full(data):
            home.prompt(agent, "PROMPT-two RUN:echo two > a.txt ENDRUN", session)
            before = contents(home)
            assert before == {"a.txt": "two\n"}
            with pytest.raises(subprocess.CalledProcessError) as failed:
                home.run("backtrail", "rewind", "1", "--yes")
            assert "Traceback" not in failed.value.stderr and failed.value.stderr.startswith("error: ")
            assert contents(home) == before
        home.run("backtrail", "verify", "-s", str(data / "agents.db"))
        home.prompt(agent, "PROMPT-three RUN:echo three > a.txt ENDRUN", session)
        assert without_replies(model.last_shown("PROMPT-three"))[:3] == [
            "PROMPT-one",
            "ran echo one > a.txt",
            "PROMPT-two",
        ]
        prompts = turns_of(home)
        assert (prompts[0], prompts[-1]) == ("PROMPT-one", "PROMPT-three")
        newest = backtrail(home, "log")["turns"][0]["number"]
        backtrail(home, "rewind", str(newest), "--yes")
        assert contents(home) == {"a.txt": "two\n"}


@pytest.mark.parametrize("agent", AGENTS)
def test_a_rewind_on_a_full_disk_of_the_project_changes_nothing(
    agent: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    with small_disk(home.project, 24):
        home.prompt(agent, "PROMPT-one RUN:head -c 3000000 /dev/urandom > large; echo one > a.txt ENDRUN")
        session = newest_session(home)
        first = tree(home.project)
        home.prompt(agent, "PROMPT-two RUN:rm large; echo two > a.txt ENDRUN", session)
        with full(home.project):
            before = tree(home.project)
            with pytest.raises(subprocess.CalledProcessError) as failed:
                home.run("backtrail", "rewind", "2", "--yes")
            assert "Traceback" not in failed.value.stderr and "No space left on device" in failed.value.stderr
            assert tree(home.project) == before
            assert newest_session(home) == session
        backtrail(home, "rewind", "2", "--yes")
        assert tree(home.project) == first
        home.prompt(agent, "PROMPT-three", newest_session(home))
        assert without_replies(model.last_shown("PROMPT-three"))[0] == "PROMPT-one"
        assert "PROMPT-two" not in model.last_shown("PROMPT-three")
