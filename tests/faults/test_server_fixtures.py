"""The servers of tests: a port stays reserved while they are down, and no child of a killed one survives."""

from __future__ import annotations

import socket
from collections.abc import Callable

import psutil
import psycopg
import pytest

from backtrail.testing.servers import Hold, PostgresServer, RedisServer


def test_a_port_that_is_held_is_refused_to_others_until_its_server_listens() -> None:
    hold = Hold()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", hold.port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", hold.port))
    with socket.create_server(("127.0.0.1", hold.port)), socket.create_connection(("127.0.0.1", hold.port)):
        assert Hold().port != hold.port


def test_a_server_keeps_its_port_when_it_is_killed_and_started_again(own_redis: Callable[..., RedisServer]) -> None:
    server = own_redis()
    for _ in range(3):
        server.kill()
        assert not server.answers()
        server.start()
        assert server.answers()


def test_no_child_of_a_killed_server_lives_on(own_postgres: Callable[..., PostgresServer]) -> None:
    server = own_postgres("-c", "fsync=off")
    assert server.process is not None
    with psycopg.connect(server.url):
        children = psutil.Process(server.process.pid).children(recursive=True)
        assert len(children) > 1
        server.kill()
        assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
