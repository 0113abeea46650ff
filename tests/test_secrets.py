"""No message, repr, log or traceback holds a secret, wherever a URL or an option has it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import backtrail
from backtrail.engines import parse
from backtrail.engines.server_url import check_server_url, public_url

SECRET = "hunter2Zq"
SERVERS = ("redis", "rediss", "redis+cluster", "redis+sentinel", "unix", "postgresql", "postgres")
# A password in which one special character was not escaped, and user names that are one.
LOGINS = [
    *(f"user:{before}{SECRET}{after}@" for before, after in itertools.product(["", "a@", "a/", "a?", "["], ["", ":"])),
    *(f"user:{SECRET}{odd}@" for odd in ["%zz", "%", "/x", "#", "?", "?x=1", "]", " ", "\n", "12/", "&key=1"]),
    f":{SECRET}@",
    f"{SECRET}@",
    f"{SECRET}:@",
]
HOSTS = ["127.0.0.1:1", "127.0.0.1:port", "[::1", "[::1]:1", "[x]:1", "127.0.0.1:99999", "", "127.0.0.1:1,127.0.0.1:x"]
QUERIES = [
    f"password={SECRET}",
    f"key={SECRET}",
    f"key={SECRET}&key={SECRET}",
    f"passwrd={SECRET}",
    f"password={SECRET}&pool_size=x",
    f"key={SECRET}&namespace=a/b",
    f"sslpassword={SECRET}",
    f"{SECRET}",
    f"{SECRET}=1",
    f"replica=redis://u:{SECRET}@127.0.0.1:1/0&replication=maybe",
]
QUICK = {"connect_timeout": 0.05, "read_timeout": 0.05, "retries": 0, "deadline": 0.05}


def server_urls() -> Iterator[str]:
    for scheme in SERVERS:
        yield from (f"{scheme}://{login}{host}/0" for login, host in itertools.product(LOGINS, HOSTS))
        yield from (f"{scheme}://127.0.0.1:1/0?{query}" for query in QUERIES)
        yield from (f"{scheme}:name?{query}" for query in QUERIES)


def use(url: str, **options: Any) -> None:
    """Open a store and list its threads."""
    with backtrail.open(url, **options) as store:
        assert SECRET not in "".join(reprs(store))
        store.threads()


def everything(error: BaseException) -> str:
    """Every text that a program could print of an error."""
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


@pytest.mark.parametrize("scheme", SERVERS)
def test_no_url_however_malformed_shows_a_password(scheme: str) -> None:
    urls = [url for url in server_urls() if url.startswith(f"{scheme}:")]
    assert len(urls) > 100
    refused = 0
    for url in urls:
        assert SECRET not in public_url(url)
        refusal = refused_with(url)
        refused += refusal != ""
        assert SECRET not in refusal, url
    assert refused > 50


def refused_with(url: str) -> str:
    """Every text of the error with which a URL is refused; empty, if it is not."""
    try:
        address = parse(url)
        assert SECRET not in repr(address)
        check_server_url(address.target)
    except backtrail.InvalidInput as error:
        return everything(error)
    return ""


@pytest.mark.parametrize("url", list(server_urls())[::41])
def test_opening_a_url_that_cannot_be_reached_shows_no_password(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for options in ({}, {"replica": url}, {"key": SECRET}):
        with pytest.raises((backtrail.InvalidInput, backtrail.Unavailable)) as caught:
            use(url, **QUICK, **options)
        assert SECRET not in everything(caught.value)
    with contextlib.suppress(backtrail.InvalidInput):  # for those that are not: the replica takes over
        use(url, **QUICK, replica=tmp_path / "other.db")
    out, err = capfd.readouterr()
    assert SECRET not in caplog.text + out + err


@pytest.mark.parametrize(
    "options",
    [
        {"key": SECRET},
        {"key": [SECRET]},
        {"password": SECRET},
        {"replica": f"redis://u:{SECRET}@127.0.0.1:port/0"},
        {"replica": f"postgresql://u:{SECRET}/@127.0.0.1:1/0"},
        {"replica": f"redis://u:{SECRET}@127.0.0.1:1/0", "replication": "maybe"},
        {"replica": f"other.db?key={SECRET}"},
    ],
)
def test_no_option_that_is_refused_is_shown(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(backtrail.InvalidInput) as caught:
        backtrail.open(tmp_path / "store.db", **options)
    assert SECRET not in everything(caught.value)


@pytest.mark.parametrize(
    "target", [f"store.db?key={SECRET}", f"redis://u:{SECRET}\0@host", f"store.db?password={SECRET}"]
)
def test_a_path_with_options_is_not_quoted_with_their_values(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(backtrail.InvalidInput) as caught:
        backtrail.open(target)
    assert SECRET not in everything(caught.value)


def test_nothing_that_an_open_store_is_made_of_shows_its_keys(tmp_path: Path) -> None:
    key = bytes(range(32))
    with backtrail.open(tmp_path / "store.db", key=[key, bytes(32)]) as store:
        store.thread("a").save({"n": 1})
        seen = "".join(reprs(store))
    for form in (repr(key)[2:-1], key.hex()):
        assert form not in seen


def test_a_password_that_looks_like_a_number_is_kept_as_it_is() -> None:
    from backtrail.engines import connect

    with pytest.raises(backtrail.Unavailable), backtrail.open("redis://127.0.0.1:1/0?password=007", **QUICK) as store:
        store.threads()
    address = parse("redis://127.0.0.1:1/0?password=007&username=1e5")
    engine: Any = connect(address, address.options, asynchronous=False)
    assert engine._client._client.connection_pool.connection_kwargs["password"] == "007"
    assert engine._client._client.connection_pool.connection_kwargs["username"] == "1e5"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("agents.db", "agents.db"),
        ("sqlite:agents.db?key=x", "sqlite:agents.db"),
        ("redis://user:pass@host:1/0?password=x", "redis://host:1/0"),
        ("redis+sentinel://u:p@a:1,b:2/service/0", "redis+sentinel://a:1,b:2/service/0"),
        ("postgresql://u:a?b@host/db", "postgresql://host/db"),
        ("postgresql://u:a/b@host/db#x", "postgresql://host/db"),
    ],
)
def test_what_is_shown_of_a_url_is_where_it_leads(url: str, shown: str) -> None:
    assert public_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost:6379/0",
        "redis://user:p%40ss@localhost:6379/0",
        "redis://[::1]:6379",
        "unix:///run/redis.sock",
        "unix://user:pass@/run/redis.sock",
        "postgresql:///agents",
        "postgresql://u@a:1,b:2/agents?target_session_attrs=any",
        "postgresql://%2Frun%2Fpostgresql/agents",
        "redis+sentinel://a:1,b:2/service/0",
    ],
)
def test_urls_as_people_write_them_pass(url: str) -> None:
    check_server_url(url)


def reprs(root: object) -> Iterator[str]:
    """The repr of every object that can be reached from `root` and belongs to backtrail."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple | set):
            waiting += one
        if not type(one).__module__.startswith("backtrail"):
            continue
        yield repr(one)
        yield str(one)
        if isinstance(one, msgspec.Struct):
            waiting += [getattr(one, name) for name in one.__struct_fields__]
        waiting += getattr(one, "__dict__", {}).values()
        names = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
        waiting += [getattr(one, name, None) for name in names]
