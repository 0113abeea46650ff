"""Marks for the needs of a test: `make test-fast` leaves out tests that need a server, a browser or much time.

`server` and `browser` are set automatically, by the fixtures and the parameters of a test; a test that starts a server
in another way, and is not marked, fails. `slow` and `linux` are set by hand.
"""

from __future__ import annotations

import re
import sys

import pytest

from backtrail.testing.servers import Server

_SERVERS = {"redis_server", "redis_cluster", "own_redis", "postgres_server", "own_postgres"}
_ENGINES = re.compile(r"\[.*\b(redis|postgres)")  # in names such as test_a_fork[redis-async]
_running: pytest.Item | None = None
_start = Server.start


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & _SERVERS or _ENGINES.search(item.name):
            item.add_marker("server")
        if "browser" in fixtures:
            item.add_marker("browser")
        if sys.platform != "linux" and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="looks into /proc, or needs file names that are not UTF-8"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> object:
    global _running
    _running = item
    try:
        return (yield)
    finally:
        _running = None


def _start_if_marked(server: Server) -> None:
    assert _running is None or _running.get_closest_marker("server"), (
        "this test starts a server: mark it with @pytest.mark.server"
    )
    _start(server)


Server.start = _start_if_marked  # type: ignore[method-assign]
