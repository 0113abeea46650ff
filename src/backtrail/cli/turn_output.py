"""Turns of a coding agent for the terminal: what was asked, the tools by name, what came back, and the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from backtrail import BacktrailError
from backtrail.cli.context import CommandContext
from backtrail.cli.diff_output import file_change_lines, file_changes_json
from backtrail.cli.formatting import age, one_line, safe
from backtrail.cli.message_output import fold, indented
from backtrail.cli.output import paged
from backtrail.model import counted
from backtrail.render.agent_turns import AgentTurn, ToolUse
from backtrail.render.jsonable import short_text
from backtrail.render.turn_details import (
    missing_files,
    read_details,
    tool_counts,
    tools_json,
    turn_files,
    turn_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backtrail.agents.sessions import AgentSession, Turn
    from backtrail.workspace import Change

_SHOWN_NAMES = 4  # files that a line of the log names


def log_json(session: AgentSession, turns: Sequence[Turn], place: int) -> dict[str, Any]:
    """One turn of the log, for `--json`."""
    files, why = _files(session, turns[place])
    listed = None if files is None else [{"path": change.path, "kind": change.kind} for change in files]
    return {**turn_json(session.thread, turns, place), "files": listed, "files_missing": why}


def log_details(session: AgentSession, turns: Sequence[Turn], place: int) -> str:
    """The second line of a turn in the log: its tools, its files, tokens and duration, as far as they are known."""
    try:
        parts = _facts(read_details(session.thread, turns, place))
    except BacktrailError as error:
        parts = [f"damaged: {error}"]
    files, _ = _files(session, turns[place])
    if files:
        names = ", ".join(change.path for change in files[:_SHOWN_NAMES])
        parts.insert(1, f"{counted(len(files), 'file')}: {names}{', …' if len(files) > _SHOWN_NAMES else ''}")
    return one_line(" · ".join(part for part in parts if part))


def print_turn(
    context: CommandContext, session: AgentSession, turns: Sequence[Turn], place: int, *, full: bool
) -> None:
    """One turn: prompt, tools with their results, answer, and the files that it changed, with diffs."""
    turn, read = turns[place], read_details(session.thread, turns, place)
    files, why = _files(session, turn)
    prompt = read.prompt or session.prompt(turn)
    if context.json:
        data = {"turn": turn_json(session.thread, turns, place), "prompt": prompt, "reply": read.reply}
        shown = None if files is None else file_changes_json(files)
        context.print_json(
            {"session": session.thread_id, **data, "tools": tools_json(read), "files": shown, "files_missing": why}
        )
        return
    with paged() as out:
        for line in _turn_lines(session, turn, read, prompt, full=full):
            out.print(line)
        out.print(Text("\nfiles", "bold").append("" if files is None else f"  {counted(len(files), 'change')}", "dim"))
        if files is None:
            out.print(indented(Text(f"not known: {one_line(why or '')}", "dim")))
        for line in file_change_lines(files or ()):
            out.print(indented(line))


def _turn_lines(session: AgentSession, turn: Turn, read: AgentTurn, prompt: str, *, full: bool) -> Iterator[Any]:
    title = Text().append(one_line(session.thread_id), "bold").append(f"  turn {turn.number}", "step")
    moment = turn.before or turn.after
    title.append("" if moment is None else f"  {age(moment.created_at)}", "age")
    title.append("  goes on" if turn.after is None else "  interrupted" if turn.interrupted else "", "label")
    yield title
    yield Text(one_line(" · ".join(filter(None, [read.model or "", *_facts(read)]))), "dim")
    yield Text("\nprompt", "user")
    yield indented(Text(safe(prompt)))
    if read.tools:
        yield Text("\ntools", "tool")
    for tool in read.tools:
        yield from map(indented, _tool_lines(tool, full=full))
    for error in read.errors:
        yield indented(Text(f"error: {one_line(error)}", "removed"))
    if read.reply:
        yield Text("\nanswer", "assistant")
        yield indented(Text(safe(read.reply)))


def _tool_lines(tool: ToolUse, *, full: bool) -> Iterator[Text]:
    arguments = safe(tool.arguments) if full else one_line(short_text(tool.arguments, 100))
    yield Text().append("▸ ", "tool").append(one_line(tool.name), "tool").append(f"({arguments})", "dim")
    if tool.result is None:
        yield Text("↳ no result", "dim")
    else:
        shown = safe(tool.result) if full else fold(tool.result)
        yield (
            Text()
            .append("↳ failed " if tool.failed else "↳ ", "removed" if tool.failed else "tool")
            .append(shown, "dim")
        )


def _facts(read: AgentTurn) -> list[str]:
    """Tools by name, tokens and duration; the first is empty if there are no tools."""
    tools = [
        f"{one['name']} ×{one['calls']}" + (f" ({one['failed']} failed)" if one["failed"] else "")
        for one in tool_counts(read)
    ]
    parts = [", ".join(tools)]
    if read.tokens is not None:
        parts.append(f"{read.tokens.input:,} + {read.tokens.output:,} tokens")
    if read.duration is not None:
        parts.append(f"{read.duration:,.1f} s")
    return parts


def _files(session: AgentSession, turn: Turn) -> tuple[tuple[Change, ...] | None, str | None]:
    """The files that a turn changed, or why they are not known."""
    try:
        found = turn_files(session.thread, turn)
    except BacktrailError as error:
        return None, str(error)
    if found is not None:
        return found, None
    return None, missing_files(turn) or ("the turn goes on" if turn.after is None else "they were not captured")
