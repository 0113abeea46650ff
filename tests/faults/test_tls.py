"""Stores over TLS: the right certificate is accepted, any other is refused at once, and no secret is revealed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backtrail.engines.base import Commit, Engine, Swap
from backtrail.engines.postgres import PostgresEngine
from backtrail.engines.redis import RedisEngine
from backtrail.errors import InvalidInput, Unavailable
from backtrail.testing import call_modes, sample_records
from backtrail.testing.servers import PostgresServer, RedisServer
from fix_tls import Authority, TLSProxy

SECRET = "hunter2-is-secret"
#: A refusal that was tried again so often would not come back before the test's own timeout.
FOR_EVER = {"retries": 100_000, "deadline": 100_000.0}
_NUMBERS = itertools.count()


class Target:
    """A kind of server behind TLS, spoken to in one mode, under the names that its driver has for things."""

    def __init__(
        self,
        kind: str,
        mode: call_modes.Mode,
        server: RedisServer | PostgresServer,
        tls_proxy_to: Callable[..., TLSProxy],
    ) -> None:
        self.kind, self.mode, self.server, self._tls_proxy_to = kind, mode, server, tls_proxy_to
        self._name = f"tls_{next(_NUMBERS)}"

    def proxy(self, pair: tuple[Path, Path], **options: Any) -> TLSProxy:
        return self._tls_proxy_to(self.server.port, pair, asked=self.kind == "postgres", **options)

    def open(self, port: int, *, host: str = "127.0.0.1", trust: Path | None, **options: Any) -> Engine:
        """An engine that trusts an authority, or (None) whoever answers."""
        if self.kind == "redis":
            checks = {"ssl_cert_reqs": "none"} if trust is None else {"ssl_ca_certs": str(trust)}
            return RedisEngine(
                f"rediss://{host}:{port}/0",
                prefix=self._name,
                asynchronous=self.mode == "awaited",
                **{**checks, **options},
            )
        checks = {"sslmode": "require"} if trust is None else {"sslmode": "verify-full", "sslrootcert": str(trust)}
        return PostgresEngine(
            f"postgresql://backtrail:{SECRET}@{host}:{port}/postgres",
            schema=self._name,
            asynchronous=self.mode == "awaited",
            **{**checks, **options},
        )

    @property
    def secret(self) -> dict[str, str]:
        """The secret that must not be told; for PostgreSQL it is in the URL."""
        return {"password": SECRET} if self.kind == "redis" else {}

    def client(self, pair: tuple[Path, Path]) -> dict[str, str]:
        """The options that show a certificate of ours."""
        names = ("ssl_certfile", "ssl_keyfile") if self.kind == "redis" else ("sslcert", "sslkey")
        return dict(zip(names, map(str, pair), strict=True))

    def run(self, engine: Engine, test: Callable[[Engine], Any]) -> None:
        async def whole(_: object) -> None:
            try:
                await test(engine)
            finally:
                await engine.close()

        call_modes.run(self.mode, whole)


@pytest.fixture(params=["redis direct", "redis awaited", "postgres direct", "postgres awaited"])
def target(request: pytest.FixtureRequest, tls_proxy_to: Callable[..., TLSProxy]) -> Target:
    kind, mode = request.param.split()
    return Target(kind, mode, request.getfixturevalue(f"{kind}_server"), tls_proxy_to)


async def works(engine: Engine) -> None:
    at = sample_records.branch("t")
    await engine.commit(sample_records.first(at))
    await engine.commit(sample_records.following(sample_records.head(at), at))
    swap = Swap("t", sample_records.head(at, 2, 2).key, sample_records.head(at, 3, 3))
    await engine.commit(Commit("t", [swap], [sample_records.row(at, 3, payload=bytes(1 << 20))]))
    assert [step for step, _ in await engine.payloads("t", at.id, 1, 9)] == [1, 2, 3]


def told(error: BaseException | None) -> Iterator[str]:
    """All that an error and those behind it say."""
    while error is not None:
        yield f"{error} {error!r}"
        error = error.__cause__ or error.__context__


async def refused(engine: Engine, match: str) -> None:
    with pytest.raises(Unavailable, match=match) as caught:
        await engine.ping()
    assert caught.value.__cause__ is not None
    assert SECRET not in " ".join(told(caught.value))


def test_a_certificate_of_a_trusted_authority_is_accepted(target: Target, authority: Authority) -> None:
    proxy = target.proxy(authority.certify("127.0.0.1"))
    target.run(target.open(proxy.port, trust=authority.file), works)


def test_a_certificate_of_a_stranger_is_refused_at_once(
    target: Target, authority: Authority, stranger: Authority
) -> None:
    proxy = target.proxy(stranger.certify("127.0.0.1"))
    target.run(
        target.open(proxy.port, trust=authority.file, **FOR_EVER, **target.secret),
        lambda engine: refused(engine, "certificate verify"),
    )


def test_a_certificate_for_another_host_is_refused_at_once(target: Target, authority: Authority) -> None:
    proxy = target.proxy(authority.certify("elsewhere.example"))
    target.run(
        target.open(proxy.port, trust=authority.file, **FOR_EVER, **target.secret),
        lambda engine: refused(engine, "(?i)match|127.0.0.1"),
    )


def test_who_asks_for_no_check_gets_none(target: Target, stranger: Authority) -> None:
    proxy = target.proxy(stranger.certify("elsewhere.example"))
    target.run(target.open(proxy.port, trust=None), works)


def test_a_server_may_ask_who_we_are(target: Target, authority: Authority, stranger: Authority) -> None:
    proxy = target.proxy(authority.certify("127.0.0.1"), clients=authority)
    target.run(target.open(proxy.port, trust=authority.file, **target.client(authority.certify("backtrail"))), works)
    for shown in {}, target.client(stranger.certify("backtrail")):
        target.run(
            target.open(proxy.port, trust=authority.file, retries=1, **shown),
            lambda engine: refused(engine, "TLS|SSL|did not answer"),
        )


def test_a_server_without_tls_is_not_spoken_to_in_the_clear(target: Target, authority: Authority) -> None:
    engine = target.open(
        target.server.port, trust=authority.file, retries=1, connect_timeout=0.3, read_timeout=0.3, **target.secret
    )
    target.run(engine, lambda engine: refused(engine, "TLS|SSL|did not answer"))


def test_an_authority_that_is_not_there_is_said(target: Target, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.pem"):
        target.open(target.server.port, trust=tmp_path / "nowhere.pem")


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "unix:///tmp/nowhere", "redis+cluster://127.0.0.1:1"])
def test_certificates_for_a_redis_without_tls_are_a_mistake(url: str, authority: Authority) -> None:
    with pytest.raises(InvalidInput, match="rediss"):
        RedisEngine(url, ssl_ca_certs=str(authority.file))
