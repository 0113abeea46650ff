"""The common part of all commands: opening the store, text or JSON output, and ending a command that failed."""

from __future__ import annotations

import contextlib
import enum
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from backtrail.cli.formatting import one_line, safe, safe_json

if TYPE_CHECKING:
    from pathlib import Path

    from backtrail import Store, Thread
    from backtrail.agents.sessions import AgentSession

DEFAULT_STORE = "backtrail.db"
# Names that no shell expands, splits or runs, and that are not taken for options: only these are completed, because
# bash puts a completion on the command line as it is.
_PLAIN_WORD = re.compile(r"[\w./@][\w./@:+=,-]*")

_TURN = re.compile(r"[0-9]{1,6}")
_NEGATIVE_STEP = re.compile(r"-[1-9][0-9]{0,6}")
_CHECKPOINT_ARGUMENTS = {"at", "a", "b"}


class ExitCode(enum.IntEnum):
    """Exit codes of the command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    DAMAGED = 5
    UNAVAILABLE = 6
    INTERRUPTED = 130  # as shells have it for Ctrl-C


class Named(NamedTuple):
    """The thread that a command is about, and what else it was given."""

    store: Store
    thread: Thread[Any]
    session: AgentSession | None  #: set if the thread keeps a session of a coding agent, and turns are meant
    words: list[str]  #: the arguments after the thread


class CommandContext:
    """The common options of one call: which store, JSON or text, tracebacks or not."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.json = False
        self.debug = False

    @property
    def named_target(self) -> str | None:
        """Path or URL of the store that was named: the option, or the environment."""
        return self.url or os.environ.get("BACKTRAIL_STORE")

    @property
    def target(self) -> str:
        """Path or URL of the store: the one that was named, or the default file."""
        return self.named_target or DEFAULT_STORE

    @property
    def agents_target(self) -> str:
        """Path or URL of the store that was named, or of this user's coding agents."""
        from backtrail.agents.user_store import store_target

        return self.named_target or store_target()

    @contextlib.contextmanager
    def store(
        self, *, create: bool = False, target: str | None = None, keys: Sequence[str] | None = None
    ) -> Iterator[Store]:
        """Open the store, or the one at `target`. A store that does not exist is an error unless `create`: a typo must
        not make a file. `keys` replaces the keys in BACKTRAIL_KEY."""
        import backtrail

        target = target or self.target
        local = is_sqlite_file(target) or target.startswith("jsonl:")
        options: dict[str, Any] = {"create": False} if local and not create else {}
        if keys := self.keys if keys is None else keys:
            options["key"] = [*keys]
        try:
            opened = backtrail.open(target, **options)
        except backtrail.NotFound as error:
            if create:
                raise
            from backtrail.cli.nearby_stores import suggest_store

            nearby = suggest_store(store_path(target) or ".")
            hint = f"{error}: name one with -s or BACKTRAIL_STORE{'; ' if nearby else ''}{nearby}"
            raise backtrail.NotFound(hint) from error
        with opened as store:
            yield store

    @contextlib.contextmanager
    def thread(self, id: str) -> Iterator[Thread[Any]]:
        """Open the store that has a thread, and yield it."""
        with self.store_of(id) as store:
            yield store.thread(id)

    def store_of(self, name: str) -> contextlib.AbstractContextManager[Store]:
        """Open the store that has the thread of this name, or those whose names begin so: unless a store was named,
        sessions of coding agents are in the agents' store."""
        return self.agents_store() if is_agent_thread(name) else self.store()

    @contextlib.contextmanager
    def named(self, *words: str | None) -> Iterator[Named]:
        """Open the store and the thread that the first word names. If none does, because there is no word or it is the
        number of a turn, the thread is that of the newest session of a coding agent in this directory."""
        from backtrail.agents.sessions import newest_session, session_of

        given = [word for word in words if word is not None]
        is_name = given and (not _TURN.fullmatch(given[0]) or (self.named_target and self._has_thread(given[0])))
        name = given[0] if is_name else None
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(self.agents_store() if name is None else self.store_of(name))
            if name is not None:
                session = session_of(store, name) if is_agent_thread(name) else None
                yield Named(store, store.thread(name), session, given[1:])
                return
            session = newest_session(store, ".")
            if session is None:
                from backtrail import NotFound

                raise NotFound(f"no session of a coding agent was captured in {os.getcwd()}: name a thread, {_INSTALL}")  # noqa: PTH109
            yield Named(store, session.thread, session, given)

    def _has_thread(self, name: str) -> bool:
        with self.store() as store:
            return store.thread(name).exists()

    @contextlib.contextmanager
    def agents_store(self, *, create: bool = False) -> Iterator[Store]:
        """Open the store of this user's coding agents, or the one that was named."""
        import backtrail
        from backtrail.agents.user_store import open_user_store

        if self.named_target:
            with self.store(create=create) as store:
                yield store
            return
        try:
            opened = open_user_store(create=create)
        except backtrail.NotFound as error:
            raise backtrail.NotFound(
                f"nothing of a coding agent was captured yet: name a thread, {_INSTALL}"
            ) from error
        with opened as store:
            yield store

    @property
    def keys(self) -> list[str]:
        """Keys from BACKTRAIL_KEY, newest first; empty for a store that is not encrypted."""
        return [key for key in os.environ.get("BACKTRAIL_KEY", "").split(",") if key]

    def print_json(self, data: Any) -> None:
        """Print `data` as JSON, in the envelope that all commands use."""
        command = click.get_current_context().command_path.partition(" ")[2]
        _echo_json({"backtrail": 1, "command": command, "data": data})


_INSTALL = "or see `backtrail agents status`"


def is_agent_thread(name: str) -> bool:
    """True if a thread has the name of a coding agent's session."""
    return name.startswith(("claude/", "codex/", "gemini/", "opencode/"))


def _echo_json(value: Any) -> None:
    """Print JSON: indented on a terminal, on one line in a pipe; either way without control characters."""
    import msgspec

    from backtrail.render.jsonable import json_bytes

    data = json_bytes(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    click.echo(safe_json(data.decode()))


def is_sqlite_file(target: str) -> bool:
    """True if the store is a SQLite file, which opening it would create."""
    scheme, colon, _ = target.partition(":")
    return not colon or len(scheme) < 2 or scheme == "sqlite" or not scheme.replace("+", "").isalnum()


def store_path(target: str) -> str | None:
    """The file or directory of a local store; None for a server."""
    scheme, _, rest = target.partition(":")
    if scheme in ("sqlite", "jsonl"):
        path = rest.partition("?")[0]
        return path[2:].removeprefix("/") if path.startswith("//") else path
    return target if is_sqlite_file(target) else None


def same_store(one: str, other: str) -> bool:
    """True if two paths or URLs name one store, as far as their text and the file system tell."""
    one_path, other_path = store_path(one), store_path(other)
    if one_path is None or other_path is None:
        return one == other != "memory:"
    return os.path.realpath(one_path) == os.path.realpath(other_path)


def read_key(path: Path) -> str:
    """Read a key file: hex or base64."""
    try:
        return path.read_text("ascii").strip()
    except UnicodeDecodeError:
        raise click.UsageError(
            f"{path} holds no key: write it in hex or base64, as `openssl rand -hex 32` does."
        ) from None


class Command(click.Command):
    """A command with the common options: --store, --json, --debug."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(
                ["-s", "--store"],
                metavar="URL",
                expose_value=False,
                callback=_common_option("url"),
                help="The store to use.",
            ),
            click.Option(
                ["--json"], is_flag=True, expose_value=False, callback=_common_option("json"), help="Print JSON."
            ),
            click.Option(
                ["--debug"], is_flag=True, expose_value=False, callback=_common_option("debug"), help="Show tracebacks."
            ),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `-2` as a step counted from the head, not as an option: no option is a number."""
        names = {parameter.name for parameter in self.params if isinstance(parameter, click.Argument)}
        if names & _CHECKPOINT_ARGUMENTS and "--" not in args:
            options = [option for option in self.params if isinstance(option, click.Option) and not option.is_flag]
            valued = {name for option in options for name in option.opts}
            args = [
                arg if before in valued else _as_position(arg) for before, arg in zip(["", *args], args, strict=False)
            ]
        return super().parse_args(ctx, args)


def _as_position(arg: str) -> str:
    """The name `@~1` for `-2`, `@` for `-1`."""
    return f"@~{int(arg[1:]) - 1}" if _NEGATIVE_STEP.fullmatch(arg) else arg


def _common_option(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """A callback that stores an option in the context, wherever on the line it was given."""

    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        context = ctx.ensure_object(CommandContext)
        if value:
            setattr(context, name, value)

    return callback


with_context = click.make_pass_decorator(CommandContext, ensure=True)


def _complete_thread(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    context = ctx.ensure_object(CommandContext)
    if context.url is None and ctx.parent is not None:
        context.url = ctx.parent.params.get("store")
    from backtrail import BacktrailError

    try:
        with context.store_of(incomplete) as store:
            found = [info.id for info in store.threads(prefix=incomplete, limit=50)]
    except BacktrailError:
        return []  # a completion has no way to show an error
    return [id for id in found if _PLAIN_WORD.fullmatch(id)]


thread_argument = click.argument("thread", shell_complete=_complete_thread)
#: For commands that know sessions of coding agents: without it, the newest one in this directory is meant.
optional_thread_argument = click.argument("thread", required=False, shell_complete=_complete_thread)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="Print what would be done, and do nothing.")


root_option = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False),
    help="With --files: the directory (default: the one that you last used with this store on this machine).",
)
keep_untracked_option = click.option(
    "--keep-untracked", is_flag=True, help="Keep files that no snapshot holds, instead of removing those that are new."
)


def at_argument(default: str | None = "@") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`AT`: a checkpoint, by any name that `thread.get` knows."""
    return click.argument("at", default=default, required=False)


def limit_option(default: int, description: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--limit N`, for commands that list."""
    return click.option(
        "-l", "--limit", metavar="N", type=click.IntRange(1), default=default, show_default=True, help=description
    )


def namespaces_of(store: Store) -> list[str]:
    """The namespaces of a store; none for a store opened in a namespace, which sees no others."""
    from backtrail import InvalidInput

    try:
        return store.namespaces()
    except InvalidInput:
        return []


def confirm(context: CommandContext, what: str, *, yes: bool) -> None:
    """Ask before doing `what`. Without a terminal, or with `--json`, nobody can be asked: `--yes` is required."""
    if yes:
        return
    if context.json or not sys.stdin.isatty():
        has_dry_run = any(parameter.name == "dry_run" for parameter in click.get_current_context().command.params)
        raise click.UsageError(
            f"{what}: say --yes to do it{', or --dry-run to see what it would do' if has_dry_run else ''}."
        )
    click.confirm(f"{one_line(what)}. Go on?", abort=True, err=True)


def print_line(text: str) -> None:
    """Print one line. Names in it come from the store, so their control characters are made visible."""
    click.echo(one_line(text))


def run(command: click.Command, args: list[str] | None = None) -> NoReturn:
    """Run the command and exit with its code; an error is printed as one line with a hint."""
    context = CommandContext()
    context.json = "--json" in (sys.argv[1:] if args is None else args)  # known even if an argument before it is wrong
    try:
        code = command.main(args, obj=context, standalone_mode=False, prog_name="backtrail")
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped; nothing is half done", err=True)
        code = ExitCode.INTERRUPTED
    except click.UsageError as error:
        code = _fail(context, "UsageError", error.format_message(), ExitCode.USAGE, error.ctx)
    except click.ClickException as error:
        code = _fail(context, type(error).__name__, error.format_message(), ExitCode.FAILED)
    except Exception as error:  # noqa: BLE001  # the outermost handler: the user gets one line, whatever it is
        if context.debug:
            click.echo(safe("".join(traceback.format_exception(error))), err=True, nl=False)
        code = _report(context, error)
    sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _report(context: CommandContext, error: Exception) -> int:
    import backtrail
    from backtrail.render.error_hints import with_cli_hints

    codes: list[tuple[type[Exception], int]] = [
        (backtrail.NotFound, ExitCode.NOT_FOUND),
        (backtrail.Conflict, ExitCode.CONFLICT),
        (backtrail.LockTimeout, ExitCode.CONFLICT),
        (backtrail.Corrupt, ExitCode.DAMAGED),
        (backtrail.UnsupportedFormat, ExitCode.DAMAGED),
        (backtrail.Unavailable, ExitCode.UNAVAILABLE),
        (backtrail.MissingExtra, ExitCode.UNAVAILABLE),
        (backtrail.InvalidInput, ExitCode.USAGE),
        (backtrail.BacktrailError, ExitCode.FAILED),
    ]
    for kind, code in codes:
        if isinstance(error, kind):
            public = next(one.__name__ for one in type(error).__mro__ if hasattr(backtrail, one.__name__))
            return _fail(context, public, with_cli_hints(str(error)) + _suggest_thread(context, error), code)
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        return _fail(context, type(error).__name__, f"{file}{error.strerror or error}", ExitCode.FAILED)
    return _fail(
        context, type(error).__name__, f"{type(error).__name__}: {error}; --debug shows where", ExitCode.FAILED
    )


def _suggest_thread(context: CommandContext, error: Exception) -> str:
    """For a thread that does not exist: the one that was probably meant."""
    import difflib

    import backtrail

    if not isinstance(error, backtrail.ThreadNotFound):
        return ""
    try:
        with context.store_of(error.thread_id) as store:
            names = [info.id for info in store.threads(limit=1000, newest_first=True)]
    except (backtrail.BacktrailError, OSError):
        return ""  # the first error is the one to report
    near = difflib.get_close_matches(error.thread_id, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _fail(context: CommandContext, kind: str, message: str, code: int, ctx: click.Context | None = None) -> int:
    if context.json:
        try:
            _echo_json({"backtrail": 1, "error": {"type": kind, "message": message, "exit_code": code}})
        except OSError as error:  # stdout cannot be written: stderr is left
            click.echo(f"error: {one_line(message)} (and stdout: {error.strerror})", err=True)
        return code
    click.echo(click.style("error: ", fg="red", bold=True) + one_line(message), err=True)
    if ctx is not None:
        click.echo(f"see {ctx.command_path} --help", err=True)
    return code
