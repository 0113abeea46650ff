"""A process killed while it goes back: afterwards files and conversation are both old or both new."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backtrail.agents import going_back
from backtrail.agents.sessions import AgentSession, newest_session
from backtrail.agents.user_store import open_user_store
from fix_children import Child

from .test_going_back import AFTER_THREE, AFTER_TWO, FakeClaude, three_turns, transcripts

pytestmark = pytest.mark.slow

Act = Callable[[Any, AgentSession], Any]


class Stage:
    """A session of three turns with all that belongs to it, to be copied before each attempt."""

    def __init__(self, base: Path, home: Path, kept: Path, prepare: Act | None) -> None:
        self._base, self._home, self._kept = base, home, kept
        with open_user_store() as store:
            self.claude = three_turns(FakeClaude(base), store)
            self.session_id = self.claude.session_id
            if prepare is not None:
                prepare(store, self.claude.read(store))
        self.before = self.seen()
        shutil.copytree(base, kept, symlinks=True, dirs_exist_ok=True)

    def reset(self) -> None:
        """Everything as it was. The directories stay the same ones, as their registry knows them."""
        for path in (self.claude.project, self._home):
            shutil.rmtree(path)
        for path in self._base.glob("*.jsonl"):
            path.unlink()
        shutil.copytree(self._kept, self._base, symlinks=True, dirs_exist_ok=True)

    def work(self, act: Act, fatal: int | None) -> Callable[[Callable[[bytes], None]], None]:
        """Go back; with `fatal`, die by SIGKILL just before that many system calls were made."""

        def run(send: Callable[[bytes], None]) -> None:
            with open_user_store() as store:
                session = newest_session(store, self.claude.project)
                assert session is not None
                seen = [0]

                def hook(event: str, _: tuple[Any, ...]) -> None:
                    if event.startswith("os.") or event == "open":
                        seen[0] += 1
                        if seen[0] == fatal:
                            os.kill(os.getpid(), signal.SIGKILL)

                sys.addaudithook(hook)
                act(store, session)
                send(str(seen[0]).encode())

        return run

    def seen(self) -> tuple[dict[str, str], bool, int]:
        """The files, whether the first session is the newest one, and how many transcripts there are."""
        with open_user_store() as store:
            going_back.recover(store, str(self.claude.project.resolve()))
            newest = newest_session(store, self.claude.project)
            assert newest is not None
            return self.claude.contents(), newest.session_id == self.session_id, len(transcripts(self.claude))


def _kill_everywhere(stage: Stage, act: Act, after: tuple[dict[str, str], bool, int]) -> None:
    stage.reset()
    status, sent = Child(stage.work(act, None)).end()
    assert (status, stage.seen()) == (0, after)
    total = int(sent)
    found = []
    for fatal in range(1, total + 1):
        stage.reset()
        assert Child(stage.work(act, fatal)).end()[0] == -signal.SIGKILL
        outcome = stage.seen()
        assert outcome in (stage.before, after), f"killed at {fatal} of {total}"
        found.append(outcome)
    assert stage.before in found
    assert after in found


def _rewind(store: Any, session: AgentSession) -> None:
    going_back.rewind(store, session, 3)


def _undo(store: Any, session: AgentSession) -> None:
    going_back.undo(store, session.cwd)


def _redo(store: Any, session: AgentSession) -> None:
    going_back.redo(store, session.cwd)


def _rewind_and_undo(store: Any, session: AgentSession) -> None:
    _rewind(store, session)
    _undo(store, session)


def _revert(store: Any, session: AgentSession) -> None:
    going_back.revert(store, session, 3)


def _conversation(store: Any, session: AgentSession) -> None:
    going_back.rewind(store, session, 3, files=False)


CASES = {
    "rewind": (_rewind, None, (AFTER_TWO, False, 2)),
    "conversation": (_conversation, None, (AFTER_THREE, False, 2)),
    "undo": (_undo, _rewind, (AFTER_THREE, True, 2)),
    "redo": (_redo, _rewind_and_undo, (AFTER_TWO, False, 2)),
    "revert": (_revert, None, (AFTER_TWO, True, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_kill_at_every_point_leaves_files_and_conversation_both_old_or_both_new(
    case: str, tmp_path: Path, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    act, prepare, after = CASES[case]
    _kill_everywhere(Stage(tmp_path, home, tmp_path_factory.mktemp("kept"), prepare), act, after)
