"""`backtrail ui`: the web inspector."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from typing import Any

import click

from backtrail.cli.context import Command, CommandContext, with_context
from backtrail.engines.server_url import public_url

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail ui\n  backtrail ui --read-only --port 8080\n"
    "  BACKTRAIL_UI_TOKEN=… backtrail ui --host 0.0.0.0 --allow-host backtrail.example.com --no-browser",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "-p", "--port", metavar="N", type=click.IntRange(0, 65535), default=7357, show_default=True, help="0: any free one."
)
@click.option(
    "--token", envvar="BACKTRAIL_UI_TOKEN", show_envvar=True, help="The access token (default: a generated one)."
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="Another host name to accept.")
@click.option("--read-only", is_flag=True, help="Refuse every change from the inspector.")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser, if there is a display.")
@with_context
def command(
    context: CommandContext,
    host: str,
    port: int,
    token: str | None,
    allow_host: tuple[str, ...],
    read_only: bool,
    browser: bool,
) -> None:
    """Open the web inspector: threads, history, conversations, state, differences, live.

    It listens on this machine only, and every call needs the token that is printed at the start. To listen on another
    address, give --host and a token of your own.
    """
    if host not in _LOOPBACK and (token is None or len(token) < 16):
        raise click.UsageError(
            "listening on other than this machine needs --token (or BACKTRAIL_UI_TOKEN) of 16 characters or more."
        )
    from backtrail import MissingExtra

    try:
        from backtrail.server.serve import Server
    except ModuleNotFoundError as error:
        raise MissingExtra("backtrail ui", "ui") from error
    from backtrail.server import application

    token = token or secrets.token_urlsafe(32)
    with context.store() as store, _listen(host, port) as socket:
        bound = socket.getsockname()[1]
        hosts = {*_LOOPBACK, *allow_host} | ({host} if host not in ("0.0.0.0", "::") else set())  # noqa: S104
        app = application(store, token=token, name=public_url(context.target), hosts=hosts, read_only=read_only)
        shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104
        address = f"http://{shown}:{bound}/#token={token}"
        if context.json:
            context.print_json({"url": address, "port": bound, "token": token, "read_only": read_only})
        else:
            click.echo(f"backtrail inspector of {public_url(context.target)}{' (read-only)' if read_only else ''}")
            click.echo(click.style(f"  {address}", bold=True))
            click.echo("  Ctrl-C stops it")
        if browser and not context.json and _has_display():
            click.launch(address)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the way to stop it
            Server(app).run(sockets=[socket])


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
