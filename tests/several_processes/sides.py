"""The two sides: files that each client opens through an engine of its own, servers behind a proxy for each client.

An engine that is `Watched` reads the client's board at each call: a file is away when the board says so, and any
engine may kill its process at a call.
"""

from __future__ import annotations

import contextlib
import inspect
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import backtrail
from backtrail.engines.base import Engine
from backtrail.engines.jsonl import JSONLEngine
from backtrail.engines.postgres import PostgresEngine
from backtrail.engines.redis import RedisEngine
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.testing.servers import PostgresServer, RedisServer, private_directory
from fix_proxy import Proxy
from several_processes.board import Board, Fuse
from several_processes.plan import View

SHORT: dict[str, Any] = {"connect_timeout": 1.0, "read_timeout": 0.4, "retries": 1, "deadline": 0.8}


class Watched(Engine):
    """Passes every call on, unless its client is not to see this side, or is to die."""

    def __init__(self, engine: Engine, board: Board, side: int | None, writes: Fuse, last_calls: Fuse) -> None:
        self.engine, self.board, self.side = engine, board, side
        self.writes, self.last_calls = writes, last_calls
        self.properties = engine.properties
        self._lost = False  # an answer, in the view of now

    def unwrap(self) -> Engine:
        return self.engine

    def view(self) -> View:
        view: View = "up" if self.side is None else self.board.view(self.side)
        if view != "lost":
            self._lost = False
        return "away" if self._lost else view


def _passing(name: str) -> Any:
    async def call(self: Watched, *args: Any, **options: Any) -> Any:
        if name == "close":
            return await self.engine.close()
        if self.board.healed:
            self.last_calls.burn()
        view = self.view()
        if view in ("away", "silent"):
            raise backtrail.Unavailable("the store is away, because the board says so")
        answer = await getattr(self.engine, name)(*args, **options)
        if name in ("commit", "drop"):
            self.writes.burn()
            if view == "lost":
                self._lost = True
                raise backtrail.Unavailable("the answer was lost, because the board says so")
        return answer

    return call


for _name, _method in vars(Engine).items():
    if inspect.iscoroutinefunction(_method):
        setattr(Watched, _name, _passing(_name))
Watched.__abstractmethods__ = frozenset()


class Side:
    """One side of all rounds; `begin` makes it new and empty for the next one."""

    server = False  #: seen through proxies, and not through the board

    def begin(self, folder: Path, number: int, clients: int) -> None:
        raise NotImplementedError

    def engine(self, client: int | None, *, asynchronous: bool) -> Engine:
        """The side as this client sees it; None: as it is."""
        raise NotImplementedError

    def show(self, client: int, view: View) -> None:
        """Change what a client sees of it."""

    def hurt(self, how: str) -> None:
        """Kill or stop its server, for everybody."""

    def mend(self) -> None:
        """Its server runs again."""

    def heal(self) -> None:
        """It is well, and everybody sees it."""


class File(Side):
    def __init__(self, kind: str, name: str) -> None:
        self._kind, self._name = kind, name

    def begin(self, folder: Path, number: int, clients: int) -> None:
        self._path = folder / f"{self._name}.{self._kind}"

    def engine(self, client: int | None, *, asynchronous: bool) -> Engine:
        make: Any = SQLiteEngine if self._kind == "sqlite" else JSONLEngine
        made: Engine = make(self._path, durability="normal")
        return made


class Machine(Side):
    server = True

    def __init__(self, server: RedisServer | PostgresServer) -> None:
        self._server = server
        self._proxies: list[Proxy] = []
        self._round = 0
        self._hurt: str | None = None

    def begin(self, folder: Path, number: int, clients: int) -> None:
        self._round = number
        while len(self._proxies) < clients:
            self._proxies.append(Proxy(self._server.port))

    def engine(self, client: int | None, *, asynchronous: bool) -> Engine:
        url, limits = self._server.url, {}
        if client is not None:
            url = url.replace(str(self._server.port), str(self._proxies[client].port))
            limits = SHORT
        if isinstance(self._server, RedisServer):
            return RedisEngine(url, asynchronous=asynchronous, prefix=f"round-{self._round}", **limits)
        return PostgresEngine(url, asynchronous=asynchronous, schema=f"round_{self._round}", **limits)

    def show(self, client: int, view: View) -> None:
        proxy = self._proxies[client]
        was_silent, proxy.silent = proxy.silent, view == "silent"
        proxy.refusing = view == "away"
        proxy.delay = 0.03 if view == "slow" else 0.0
        proxy.cut_next_answers(3 if view == "lost" else 0)
        if view == "away" or was_silent:
            proxy.cut()

    def hurt(self, how: str) -> None:
        if self._hurt is None:
            self._hurt = how
            if how == "server kill":
                self._server.kill()
            else:
                self._server.signal(signal.SIGSTOP)

    def mend(self) -> None:
        if self._hurt == "server kill":
            self._server.start()
        elif self._hurt is not None:
            self._server.signal(signal.SIGCONT)
        self._hurt = None

    def heal(self) -> None:
        self.mend()
        for client in range(len(self._proxies)):
            self.show(client, "up")

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()


@contextlib.contextmanager
def two_sides(primary: str, replica: str) -> Iterator[tuple[Side, Side]]:
    """Both sides of one configuration: "sqlite", "jsonl", "redis" or "postgres"."""
    with contextlib.ExitStack() as stack:
        make: dict[str, Callable[[Path], RedisServer | PostgresServer]] = {
            "redis": RedisServer,
            "postgres": lambda folder: PostgresServer(folder, "-c", "fsync=off", "-c", "max_connections=200"),
        }

        def side(kind: str, name: str) -> Side:
            if kind not in make:
                return File(kind, name)
            server = make[kind](stack.enter_context(private_directory()) / name)
            server.start()
            stack.callback(server.kill)
            machine = Machine(server)
            stack.callback(machine.close)
            return machine

        yield side(primary, "primary"), side(replica, "replica")
