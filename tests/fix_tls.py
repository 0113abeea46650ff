"""TLS in front of a server that speaks none itself: a throw-away authority, and a proxy that ends TLS.

A PostgreSQL client begins unencrypted and asks for TLS; the proxy answers as the server would, and then does the
handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CHUNK = 1 << 16
#: The message of a PostgreSQL client that wants TLS: eight bytes long, and a number that is no version.
ASKS_FOR_TLS = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")


class Authority:
    """Signs certificates for names and addresses."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory / name
        self._directory.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=0)
        own = self._signed(self._name, self._key.public_key(), basic)
        self.file = self._directory / "ca.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def certify(self, *names: str) -> tuple[Path, Path]:
        """A certificate for these names or addresses, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        also = x509.SubjectAlternativeName([_general(name) for name in names])
        made = self._signed(subject, key.public_key(), x509.BasicConstraints(ca=False, path_length=None), also)
        certificate, private = self._directory / f"{names[0]}.pem", self._directory / f"{names[0]}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.touch(mode=0o600)  # libpq refuses a key that others may read
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *also: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        for extension in also:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class TLSProxy:
    """Listens on a free port, ends TLS, and passes everything on to `port`."""

    def __init__(self, port: int, context: ssl.SSLContext, *, asked: bool) -> None:
        self.target = port
        self._context = context
        self._asked = asked  #: clients begin in the clear, and ask
        self._loop = asyncio.new_event_loop()
        # A client that does not like the certificate ends the handshake: that is what is tested.
        self._loop.set_exception_handler(lambda *_: None)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _aborted(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if self._asked:
                assert await reader.readexactly(8) == ASKS_FOR_TLS
                writer.write(b"S")
                await writer.drain()
            await writer.start_tls(self._context)
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.target)
            with _aborted(inner_writer):
                pumps = [
                    asyncio.create_task(_pump(reader, inner_writer)),
                    asyncio.create_task(_pump(inner_reader, writer)),
                ]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)

    def close(self) -> None:
        """End everything, and wait for it."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for _ in range(5):  # a client that has just been let in is served in the next turn; sockets are closed in one
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0)


@contextlib.contextmanager
def _aborted(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Closed without a goodbye: the other side may be gone, and then it would be waited for."""
    try:
        yield
    finally:
        writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The one that is trusted."""
    return Authority(tmp_path_factory.mktemp("tls"), "trusted")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("tls"), "stranger")


@pytest.fixture
def tls_proxy_to() -> Iterator[Callable[..., TLSProxy]]:
    """Make proxies: to a port, with a certificate and its key; `clients`: the authority that clients must have."""
    with contextlib.ExitStack() as stack:

        def make(port: int, pair: tuple[Path, Path], *, asked: bool, clients: Authority | None = None) -> TLSProxy:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*pair)
            if clients is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(clients.file)
            proxy = TLSProxy(port, context, asked=asked)
            stack.callback(proxy.close)
            return proxy

        yield make
