"""What all commands share: which store, in which form to answer, and how an error ends a command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from pathlib import Path

    from backtrail import Checkpoint, Store, Thread

DEFAULT_STORE = "backtrail.db"
OK, FAILED, USAGE, MISSING, CONFLICT, DAMAGED, AWAY, STOPPED = 0, 1, 2, 3, 4, 5, 6, 130


class CommandContext:
    """The common options of one call."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.json = False
        self.debug = False

    @property
    def target(self) -> str:
        """The store that is meant."""
        return self.url or os.environ.get("BACKTRAIL_STORE") or DEFAULT_STORE

    @contextlib.contextmanager
    def store(
        self, *, create: bool = False, target: str | None = None, keys: Sequence[str] | None = None
    ) -> Iterator[Store]:
        """The store, open, or the one at `target`. One that is not there yet is an error unless `create`: a typo must
        not make a file. `keys` are those to open it with, if not those in BACKTRAIL_KEY."""
        import backtrail

        target = target or self.target
        local = is_file(target) or target.startswith("jsonl:")
        options: dict[str, Any] = {"create": False} if local and not create else {}
        if keys := self.keys if keys is None else keys:
            options["key"] = [*keys]
        try:
            opened = backtrail.open(target, **options)
        except backtrail.NotFound as error:
            raise backtrail.NotFound(f"{error}: name one with -s or BACKTRAIL_STORE") from error
        with opened as store:
            yield store

    @property
    def keys(self) -> list[str]:
        """The keys of the store, the newest first; none for one that is not encrypted."""
        return [key for key in os.environ.get("BACKTRAIL_KEY", "").split(",") if key]

    def answer(self, data: Any) -> None:
        """The answer as JSON, in the one envelope that all commands use."""
        command = click.get_current_context().command_path.partition(" ")[2]
        print_json({"backtrail": 1, "command": command, "data": data})


def print_json(value: Any) -> None:
    """`value` on stdout, on several lines for people, on one line in a pipe."""
    import msgspec

    from backtrail.render.jsonable import json_bytes

    data = json_bytes(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    click.echo(data.decode())


def is_file(target: str) -> bool:
    """Whether the store is a SQLite file, which opening would create."""
    scheme, colon, _ = target.partition(":")
    return not colon or len(scheme) < 2 or scheme == "sqlite" or not scheme.replace("+", "").isalnum()


def path_of(target: str) -> str | None:
    """The file or directory of a store that is in one."""
    scheme, _, rest = target.partition(":")
    if scheme in ("sqlite", "jsonl"):
        path = rest.partition("?")[0]
        return path[2:].removeprefix("/") if path.startswith("//") else path
    return target if is_file(target) else None


def same_place(one: str, other: str) -> bool:
    """Whether two names mean one store, as far as that can be told from outside."""
    here, there = path_of(one), path_of(other)
    if here is None or there is None:
        return one == other != "memory:"
    return os.path.realpath(here) == os.path.realpath(there)


def read_key(path: Path) -> str:
    """The key that a file holds, in hex or base64."""
    try:
        return path.read_text("ascii").strip()
    except UnicodeDecodeError:
        raise click.UsageError(
            f"{path} holds no key: write it in hex or base64, as `openssl rand -hex 32` does."
        ) from None


class Command(click.Command):
    """A command with the options that every command has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(
                ["-s", "--store"], metavar="URL", expose_value=False, callback=_note("url"), help="The store to use."
            ),
            click.Option(["--json"], is_flag=True, expose_value=False, callback=_note("json"), help="Answer in JSON."),
            click.Option(
                ["--debug"], is_flag=True, expose_value=False, callback=_note("debug"), help="Show tracebacks."
            ),
        ]


def _note(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        frame = ctx.ensure_object(CommandContext)
        if value:
            setattr(frame, name, value)

    return callback


pass_frame = click.make_pass_decorator(CommandContext, ensure=True)


def _complete_thread(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    frame = ctx.ensure_object(CommandContext)
    if frame.url is None and ctx.parent is not None:
        frame.url = ctx.parent.params.get("store")
    from backtrail import BacktrailError

    try:
        with frame.store() as store:
            return [info.id for info in store.threads(prefix=incomplete, limit=50)]
    except BacktrailError:
        return []  # completion has nowhere to complain


thread_argument = click.argument("thread", shell_complete=_complete_thread)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done.")


def at_argument(required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`AT`: a checkpoint by any of its names."""
    return click.argument("at") if required else click.argument("at", default="@")


def limit_option(default: int, told: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--limit N`, of the commands that list."""
    return click.option(
        "-l", "--limit", metavar="N", type=click.IntRange(1), default=default, show_default=True, help=told
    )


def rooms(store: Store) -> list[str]:
    """The namespaces of a store; one that was opened in a namespace sees no others."""
    from backtrail import InvalidInput

    try:
        return store.namespaces()
    except InvalidInput:
        return []


def place(thread: Thread[Any], text: str) -> Checkpoint:
    """The checkpoint of that name."""
    from backtrail.render.refs import resolve

    return resolve(thread, text)


def confirm(frame: CommandContext, what: str, *, yes: bool) -> None:
    """Say what will be done and ask; a pipe or `--json` cannot be asked and must say `--yes`."""
    if yes:
        return
    if frame.json or not sys.stdin.isatty():
        looks = any(parameter.name == "dry_run" for parameter in click.get_current_context().command.params)
        raise click.UsageError(
            f"{what}: say --yes to do it{', or --dry-run to see what it would do' if looks else ''}."
        )
    click.confirm(f"{what}. Go on?", abort=True, err=True)


def say(text: str) -> None:
    """One line of plain text; names in it may come from anywhere."""
    click.echo(_one_line(text))


def run(command: click.Command, args: list[str] | None = None) -> NoReturn:
    """Run the command and leave with its exit code; an error is one line with a hint."""
    frame = CommandContext()
    frame.json = "--json" in (sys.argv[1:] if args is None else args)  # also for an error in what comes before it
    try:
        code = command.main(args, obj=frame, standalone_mode=False, prog_name="backtrail")
    except click.exceptions.Exit as leave:
        code = leave.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped; nothing is half done", err=True)
        code = STOPPED
    except click.UsageError as error:
        code = _fail(frame, "UsageError", error.format_message(), USAGE, error.ctx)
    except click.ClickException as error:
        code = _fail(frame, type(error).__name__, error.format_message(), FAILED)
    except Exception as error:  # the last frame: whatever it is, the user gets one line
        if frame.debug:
            raise
        code = _report(frame, error)
    sys.exit(code if isinstance(code, int) else OK)


def _report(frame: CommandContext, error: Exception) -> int:
    import backtrail
    from backtrail.render.hints import advised

    codes: list[tuple[type[Exception], int]] = [
        (backtrail.NotFound, MISSING),
        (backtrail.Conflict, CONFLICT),
        (backtrail.LockTimeout, CONFLICT),
        (backtrail.Corrupt, DAMAGED),
        (backtrail.UnsupportedFormat, DAMAGED),
        (backtrail.Unavailable, AWAY),
        (backtrail.MissingExtra, AWAY),
        (backtrail.InvalidInput, USAGE),
        (backtrail.BacktrailError, FAILED),
    ]
    for kind, code in codes:
        if isinstance(error, kind):
            public = next(one.__name__ for one in type(error).__mro__ if hasattr(backtrail, one.__name__))
            return _fail(frame, public, advised(str(error)) + _near(frame, error), code)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return _fail(frame, type(error).__name__, f"{place}{error.strerror or error}", FAILED)
    return _fail(frame, type(error).__name__, f"{type(error).__name__}: {error}; --debug shows where", FAILED)


def _near(frame: CommandContext, error: Exception) -> str:
    """For a thread that is not there: the one that was probably meant."""
    import difflib

    import backtrail

    if not isinstance(error, backtrail.ThreadNotFound):
        return ""
    try:
        with frame.store() as store:
            names = [info.id for info in store.threads(limit=1000, newest_first=True)]
    except (backtrail.BacktrailError, OSError):
        return ""  # it could not say more anyway
    near = difflib.get_close_matches(error.thread_id, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _fail(frame: CommandContext, kind: str, message: str, code: int, ctx: click.Context | None = None) -> int:
    if frame.json:
        try:
            print_json({"backtrail": 1, "error": {"type": kind, "message": message, "exit_code": code}})
        except OSError as error:  # nobody can read stdout: stderr is what is left
            click.echo(f"error: {_one_line(message)} (and stdout: {error.strerror})", err=True)
        return code
    click.echo(click.style("error: ", fg="red", bold=True) + _one_line(message), err=True)
    if ctx is not None:
        click.echo(f"see {ctx.command_path} --help", err=True)
    return code


def _one_line(message: str) -> str:
    """Names in a message come from the store: none of their control characters may reach the terminal."""
    return "".join(c if c.isprintable() else " " for c in " ".join(message.split()))
