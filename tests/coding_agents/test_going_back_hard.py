"""Going back in a large project, with links and a submodule, and on a disk that is full."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from backtrail.agents import going_back
from backtrail.agents.sessions import newest_session
from backtrail.agents.user_store import open_user_store
from backtrail.errors import BacktrailError
from coding_agents.test_going_back import AFTER_THREE, AFTER_TWO, FakeClaude, three_turns, transcripts
from fix_faulty_disk import Calls, Faults, in_shim

pytestmark = [pytest.mark.slow, pytest.mark.linux]


def test_twenty_thousand_files_with_links_a_submodule_and_ignored_ones_come_back(tmp_path: Path) -> None:
    claude = FakeClaude(tmp_path)
    root = claude.project
    for folder in range(200):
        (root / f"src/{folder}").mkdir(parents=True)
        for number in range(100):
            (root / f"src/{folder}/{number}.py").write_text(f"{folder} {number}\n")
    claude.write(".gitignore", "node_modules/\n.env\n")
    claude.write("node_modules/x/index.js", "ignored")
    claude.write(".env", "SECRET")
    claude.write("vendor/lib/.git", "gitdir: ../../.git/modules/lib\n")  # a submodule
    claude.write("vendor/lib/code.c", "code")
    (root / "link").symlink_to("src/1/1.py")
    (root / "folder-link").symlink_to("src/2")
    (root / "dangling").symlink_to("nowhere")
    before = _tree(root)
    with open_user_store() as store:
        claude.turn(store, 1, {})
        claude.begin(store, 2)
        for folder in range(0, 200, 2):
            shutil.rmtree(root / f"src/{folder}")
        shutil.rmtree(root / "vendor/lib")
        for name in ("link", "folder-link", "dangling"):
            (root / name).unlink()
        claude.write("link", "a file now")
        claude.write("folder-link/made", "a directory now")
        claude.turn(store, 3, {".env": "CHANGED", "node_modules/y.js": "more"})
        after = _tree(root)
        done = going_back.rewind(store, claude.read(store), 2)
        assert done.changes is not None and len(done.changes) > 10_000
        changed = {".env": "CHANGED", "node_modules/y.js": "more"}
        assert _tree(root) == {path: what for path, what in before.items() if path != "vendor/lib/.git"} | changed
        going_back.undo(store, root)
        assert _tree(root) == after


def _tree(root: Path) -> dict[str, str]:
    found = {}
    for folder, names, files in os.walk(root):
        for name in [*files, *(name for name in names if Path(folder, name).is_symlink())]:
            path = Path(folder, name)
            what = f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
            found[str(path.relative_to(root))] = what
    return found


def test_on_a_full_disk_files_and_conversation_stay_as_they_were(tmp_path: Path) -> None:
    for part in ("project", ".jsonl", "agents.db", "rewinds"):
        in_shim(fill_the_disk, str(tmp_path), part)


def fill_the_disk(directory: str, part: str) -> None:
    """Runs in a process of its own: rewind while writes below `part` find no space, at any of the first calls."""
    faults = Faults()
    failed = 0
    for skip in (0, 1, 2, 3, 5, 8, 13, 21):
        base = Path(directory, f"{part.strip('.')}-{skip}")
        (base / "home").mkdir(parents=True)
        os.environ["HOME"] = str(base / "home")
        with open_user_store() as store:
            claude = three_turns(FakeClaude(base), store)
            session = claude.read(store)
            try:
                with faults.on(Calls.WRITE | Calls.SYNC | Calls.TRUNCATE, part, errno.ENOSPC, skip=skip):
                    done = going_back.rewind(store, session, 3)
            except (BacktrailError, OSError):
                failed += 1
                going_back.recover(store, session.cwd)
                newest = newest_session(store, claude.project)
                assert newest is not None
                assert (claude.contents(), newest.session_id) == (AFTER_THREE, claude.session_id), (part, skip)
                assert transcripts(claude) == [claude.session_id]
            else:
                assert claude.contents() == AFTER_TWO
                assert done.fork is not None or any("only the files go back" in note for note in done.notes)
            going_back.rewind(store, claude.read(store), 2)
            assert claude.contents()["a.txt"] == "one"
    assert failed or part == ".jsonl", part
