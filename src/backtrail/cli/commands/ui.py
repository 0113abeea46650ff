"""`backtrail ui`: the web inspector."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from typing import Any

import click

from backtrail.cli.context import Command, CommandContext, pass_frame

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail ui\n  backtrail ui --read-only --port 8080\n"
    "  BACKTRAIL_UI_TOKEN=… backtrail ui --host 0.0.0.0 --allow-host backtrail.example.com --no-browser",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "-p", "--port", metavar="N", type=click.IntRange(0, 65535), default=7357, show_default=True, help="0: any free one."
)
@click.option("--token", envvar="BACKTRAIL_UI_TOKEN", show_envvar=True, help="The token; without it one is made.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="Another host name to answer to.")
@click.option("--read-only", is_flag=True, help="Nothing can be changed from the inspector.")
@click.option("--browser/--no-browser", default=True, help="Open the page in the browser, where there is a screen.")
@pass_frame
def command(
    frame: CommandContext,
    host: str,
    port: int,
    token: str | None,
    allow_host: tuple[str, ...],
    read_only: bool,
    browser: bool,
) -> None:
    """Open the web inspector: threads, history, conversations, state, differences, live.

    It listens on this machine only, and every call needs the token that is printed at the start. To listen elsewhere,
    give --host and a token of your own.
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
    with frame.store() as store, _listen(host, port) as socket:
        bound = socket.getsockname()[1]
        hosts = {*_LOOPBACK, *allow_host} | ({host} if host not in ("0.0.0.0", "::") else set())  # noqa: S104
        app = application(store, token=token, name=_shown(frame.target), hosts=hosts, read_only=read_only)
        shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104
        address = f"http://{shown}:{bound}/#token={token}"
        if frame.json:
            frame.answer({"url": address, "port": bound, "token": token, "read_only": read_only})
        else:
            click.echo(f"backtrail inspector of {_shown(frame.target)}{' (read-only)' if read_only else ''}")
            click.echo(click.style(f"  {address}", bold=True))
            click.echo("  Ctrl-C stops it")
        if browser and not frame.json and _screen():
            click.launch(address)
        with contextlib.suppress(KeyboardInterrupt):  # how one is meant to stop it
            Server(app).run(sockets=[socket])


def _screen() -> bool:
    """Whether a browser could be seen: on a server, looking for one only makes noise."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _listen(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # before the address is told: whoever is quick waits until the server is up
    except OSError as error:
        listener.close()
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}; try --port 0") from error
    return listener


def _shown(target: str) -> str:
    """The store's name without a password or options."""
    from urllib.parse import urlsplit

    parts = urlsplit(target)
    if not parts.netloc:
        return target.partition("?")[0]
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
