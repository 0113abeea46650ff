"""What an agent can ask of its own session: turns, differences, checkpoints, and going back. As text for a model.

These functions are the tools of the MCP server, without the protocol. What changes files is asked for twice: first the
plan, with a token; then the same with that token, which does exactly that plan or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from backtrail.agents import going_back
from backtrail.agents.going_back_text import change_lines, outcome_lines
from backtrail.agents.session_lock import session_lock
from backtrail.agents.sessions import AgentSession, Turn, sessions
from backtrail.errors import InvalidInput, NoCheckpoint, NotFound
from backtrail.history.validation import check_label
from backtrail.render.agent_turns import AgentTurn
from backtrail.render.jsonable import short_text
from backtrail.render.text_search import Wanted, matching_messages
from backtrail.render.turn_details import missing_files, read_details, tool_counts, turn_files
from backtrail.render.visible_text import one_line, safe

if TYPE_CHECKING:
    from backtrail.agents.going_back_plan import Outcome
    from backtrail.store import Store
    from backtrail.workspace import Change

MAX_TEXT = 40_000  #: characters of one answer: it goes into the agent's context
_MAX_TURNS = 200
_MAX_FOUND = 50
SEARCHED = 100  #: sessions that a text is looked for in, those that were used last
_PATIENCE = 20.0  # seconds for which a hook that holds the session is waited for
_WIDTH = 160


def bounded(lines: Iterator[str] | list[str]) -> str:
    """An answer: without control characters, and not longer than a model wants to read."""
    text = safe("\n".join(lines))
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + f"\n… {len(text) - MAX_TEXT:,} more characters"


# -- looking -----------------------------------------------------------------------------------------------------------


def list_turns(session: AgentSession, limit: int) -> str:
    """The newest turns and labelled checkpoints."""
    turns = session.turns()
    shown = turns[-max(1, min(limit, _MAX_TURNS)) :]
    lines = [f"session {session.thread_id} in {session.cwd}, {len(turns)} turns"]
    lines += [turn_line(turn) for turn in shown]
    marked = [c for c in session.thread.history() if c.label and c.custom.get("event") == "checkpoint"]
    lines += [f"checkpoint {one_line(c.label or '')} ({c.id}), in turn {c.custom.get('turn')}" for c in marked[-limit:]]
    return bounded(lines)


def turn_line(turn: Turn) -> str:
    """One turn on one line."""
    moment = turn.before or turn.after
    when = "" if moment is None else f" {moment.created_at.astimezone():%Y-%m-%d %H:%M}"
    state = " (goes on)" if turn.after is None else " (interrupted)" if turn.interrupted else ""
    return f"turn {turn.number}{when}{state}: {one_line(turn.prompt) or '(no prompt)'}"


def show_turn(session: AgentSession, number: int | None) -> str:
    """One turn: its prompt, its tools, its answer and its files."""
    turns, place = _place(session, number)
    turn, read = turns[place], read_details(session.thread, turns, place)
    lines = [turn_line(turn), "", "prompt:", *_indented(read.prompt or session.prompt(turn))]
    lines += ["", *facts(read)]
    for tool in read.tools:
        lines.append(f"{tool.name}({short_text(tool.arguments, _WIDTH)}){' failed' if tool.failed else ''}")
        if tool.result:
            lines.append(f"  -> {short_text(tool.result, _WIDTH)}")
    if read.reply:
        lines += ["", "answer:", *_indented(read.reply)]
    return bounded([*lines, "", *_file_lines(session, turn)])


def facts(read: AgentTurn) -> list[str]:
    """Tools by name, tokens, duration and errors, a line each."""
    tools = [f"{one['name']} ×{one['calls']}" + _failed(one["failed"]) for one in tool_counts(read)]
    lines = [f"tools: {', '.join(tools) or 'none'}"]
    if read.tokens is not None:
        lines.append(
            f"tokens: {read.tokens.input:,} read ({read.tokens.cached:,} cached), {read.tokens.output:,} written"
        )
    if read.duration is not None:
        lines.append(f"duration: {read.duration:,.1f} s")
    return lines + [f"error: {one_line(error)}" for error in read.errors]


def _failed(count: int) -> str:
    return f" ({count} failed)" if count else ""


def diff(session: AgentSession, number: int | None, *, until_now: bool) -> str:
    """The changes that a turn made to the files, or all since its beginning."""
    turns, place = _place(session, number)
    turn = turns[place]
    if not until_now:
        return bounded([turn_line(turn), *_file_lines(session, turn, diffs=True)])
    if turn.before is None or turn.before.files is None:
        why = missing_files(turn) or "they were not captured"
        raise NoCheckpoint(f"the files before turn {turn.number} are missing: {why}")
    changes = session.workspace().diff(turn.before).changes
    return bounded([f"since before turn {turn.number}:", *_change_lines(changes, diffs=True)])


def find(store: Store, session: AgentSession | None, text: str, *, everywhere: bool, limit: int) -> str:
    """Messages that contain a text, in this session or in those that were used last."""
    if not text.strip():
        raise InvalidInput("there is no text to look for")
    searched = list(islice(sessions(store), SEARCHED + 1)) if everywhere or session is None else [session]
    most = max(1, min(limit, _MAX_FOUND))
    found = list(islice(_found(searched[:SEARCHED], text), most))
    lines = found or ["nothing found"]
    if len(searched) > SEARCHED and len(found) < most:
        lines.append(f"looked through the {SEARCHED} sessions that were used last; `backtrail find` looks through all")
    return bounded(lines)


def _found(among: list[AgentSession], text: str) -> Iterator[str]:
    for searched in among:
        for one in matching_messages(searched.thread, searched.head, Wanted(text)):
            where = f"{searched.thread_id} message {one.number}, after the prompt {short_text(one.prompt, 60)!r}"
            yield one_line(f"{where}, {one.role}: {one.before}{one.match}{one.after}")


# -- marking -----------------------------------------------------------------------------------------------------------


def checkpoint(session: AgentSession, label: str) -> str:
    """Save the files as they are now, under a label."""
    check_label(label)  # before there is a snapshot
    files = session.workspace().snapshot()
    with session_lock(session.thread_id, _PATIENCE):
        head = session.head
        kept: dict[str, Any] = {
            key: head.custom[key] for key in ("turn", "open", "turn_id", "cwd") if key in head.custom
        }
        custom = {"agent": session.agent, "event": "checkpoint", **kept}
        saved = session.thread.update({}, label=label, custom=custom, files=files, expect=head.id)
    return bounded([f"saved the files of {session.cwd} as checkpoint {one_line(label)!r} ({saved.id})"])


def label(session: AgentSession, at: str, text: str) -> str:
    """Give a checkpoint a name."""
    named = {f"turn {turn.number}": turn for turn in session.turns()}.get(at.strip().lower())
    if named is not None and named.after is None:
        raise NoCheckpoint(f"turn {named.number} goes on: its end can be named when it has ended")
    target = session.thread.get(at if named is None or named.after is None else named.after)
    if target.custom.get("event") == "prompt":
        raise InvalidInput(f"checkpoint {target.id} is a prompt, and its label is the prompt's text: name another one")
    marked = session.thread.annotate(target, label=text or None)
    return bounded([f"checkpoint {marked.id} is named {one_line(text)!r}" if text else f"{marked.id} has no name now"])


# -- going back --------------------------------------------------------------------------------------------------------


def restore_files(store: Store, session: AgentSession, number: int, token: str | None) -> str:
    """Bring the files back to before a turn; the conversation stays."""
    done = going_back.rewind(store, session, number, conversation=False, dry_run=token is None, token=token)
    return _outcome(done, f"restore_files(turn={number}, token={done.token!r})")


def revert_turn(store: Store, session: AgentSession, number: int, token: str | None) -> str:
    """Take back what one turn did to the files, and keep later work."""
    done = going_back.revert(store, session, number, dry_run=token is None, token=token)
    return _outcome(done, f"revert_turn(turn={number}, token={done.token!r})")


def undo(store: Store, session: AgentSession, token: str | None) -> str:
    """Take back the newest restore or revert."""
    done = going_back.undo(store, session.cwd, dry_run=token is None, token=token)
    return _outcome(done, f"undo(token={done.token!r})")


def rewind_conversation(store: Store, session: AgentSession, number: int) -> str:
    """Make a session of the agent that ends before a turn, and say how a person goes on with it."""
    done = going_back.rewind(store, session, number, files=False)
    return bounded(
        [*outcome_lines(done), "Tell the person this command: it is theirs to run. The files stay as they are."]
    )


def _outcome(outcome: Outcome, again: str) -> str:
    lines = outcome_lines(outcome)
    return bounded([*lines, f"nothing was done yet. To do exactly this: {again}"] if outcome.dry_run else lines)


# -- inside ------------------------------------------------------------------------------------------------------------


def _place(session: AgentSession, number: int | None) -> tuple[list[Turn], int]:
    """The turns, and the place of one of them; without a number, of the newest."""
    turns = session.turns()
    if not turns:
        raise NotFound(f"no prompt of {session.thread_id} was captured yet")
    return turns, len(turns) - 1 if number is None else turns.index(session.turn(number))


def _file_lines(session: AgentSession, turn: Turn, *, diffs: bool = False) -> list[str]:
    changes = turn_files(session.thread, turn)
    if changes is None:
        why = missing_files(turn) or ("the turn goes on" if turn.after is None else "they were not captured")
        return [f"files: not known: {why}"]
    return [f"files: {len(changes)} changed", *_change_lines(changes, diffs=diffs)]


def _change_lines(changes: tuple[Change, ...], *, diffs: bool) -> list[str]:
    from backtrail.workspace import Changes

    if not diffs:
        return list(change_lines(Changes(changes)))
    return [line for change in changes for line in (str(change), *(change.text or "").splitlines())]


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
