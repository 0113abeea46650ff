"""`backtrail ui`: the web inspector."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from pathlib import Path
from typing import Any

import click

from backtrail.cli.context import Command, CommandContext, with_context
from backtrail.engines.server_url import public_url

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail ui\n  backtrail ui --agents\n  backtrail ui --read-only --port 8080\n"
    "  BACKTRAIL_UI_TOKEN=… backtrail ui --host 0.0.0.0 --allow-host backtrail.example.com --no-browser",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "-p", "--port", metavar="N", type=click.IntRange(0, 65535), default=7357, show_default=True, help="0: any free one."
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the access token (default: BACKTRAIL_UI_TOKEN, else a generated one).",
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="Another host name to accept.")
@click.option("--agents", is_flag=True, help="Show the sessions of your coding agents.")
@click.option("--read-only", is_flag=True, help="Refuse every change from the inspector.")
@click.option("--metrics", is_flag=True, help="Answer /metrics in the form of Prometheus, with the token.")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser, if there is a display.")
@with_context
def command(
    context: CommandContext,
    host: str,
    port: int,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    agents: bool,
    read_only: bool,
    metrics: bool,
    browser: bool,
) -> None:
    """Open the web inspector: threads, history, conversations, state, differences, live.

    It listens on this machine only. The address that it prints opens the page once; then it prints the next one. The
    HTTP API needs the access token. To listen on another address, give --host and a token of your own.
    """
    # Never as an option: everybody on the machine can read the arguments of a program.
    token = _read_token(token_file) if token_file is not None else os.environ.get("BACKTRAIL_UI_TOKEN")
    if host not in _LOOPBACK and (token is None or len(token) < 16):
        raise click.UsageError(
            "listening on other than this machine needs a token of 16 characters or more, "
            "in BACKTRAIL_UI_TOKEN or --token-file."
        )
    from backtrail import MissingExtra

    try:
        from backtrail.server.serve import Server
    except ModuleNotFoundError as error:
        raise MissingExtra("backtrail ui", "ui") from error
    from backtrail.server import application

    token = token or secrets.token_urlsafe(32)
    with context.agents_store() if agents else context.store() as store, _listen(host, port) as socket:
        bound = socket.getsockname()[1]
        hosts = {*_LOOPBACK, *allow_host} | ({host} if host not in ("0.0.0.0", "::") else set())  # noqa: S104
        name = public_url(context.agents_target if agents else context.target)
        app = application(store, token=token, name=name, hosts=hosts, read_only=read_only, metrics=metrics)
        shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104
        codes = app.state.codes

        def link() -> str:
            return f"http://{shown}:{bound}/#code={codes.make()}"

        if context.json:
            context.print_json({"url": link(), "port": bound, "token": token, "read_only": read_only})
        else:
            codes.on_used = lambda: click.echo(f"  opened; for another browser: {link()}")
            click.echo(f"backtrail inspector of {name}{' (read-only)' if read_only else ''}")
            click.echo(click.style(f"  {link()}", bold=True))
            click.echo("  Ctrl-C stops it")
        if browser and not context.json and _has_display():
            click.launch(link())
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the way to stop it
            Server(app).run(sockets=[socket])


def _read_token(path: Path) -> str:
    try:
        token = path.read_text("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token:
        raise click.UsageError(f"{path} holds no token: write one line of ASCII text into it.")
    return token


def _has_display() -> bool:
    """True if a browser could be shown; on a server, launching one only prints errors."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _listen(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # before the address is printed: an early client waits until the server is up
    except OSError as error:
        listener.close()
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}; try --port 0") from error
    return listener
