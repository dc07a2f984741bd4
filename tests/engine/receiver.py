"""A server that people would point a webhook at: it keeps what came, and answers as it is told."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Got(msgspec.Struct):
    """One request."""

    line: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Answers with these bytes, the last of them for ever; without any it never answers."""

    def __init__(self, *answers: bytes | int) -> None:
        self.got: list[Got] = []
        self.connections = 0
        self.port = 0
        self._answers = [_answer(one) for one in answers]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.strip().split("\r\n")
            headers = dict(one.split(": ", 1) for one in rest)
            body = await reader.readexactly(int(headers["Content-Length"]))
            self.got.append(Got(line, headers, body))
            if not self._answers:
                # Silent until the other side has had enough.
                await reader.read()
            else:
                writer.write(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def _answer(said: bytes | int) -> bytes:
    if isinstance(said, bytes):
        return said
    return f"HTTP/1.1 {said} X\r\nContent-Length: 2\r\n\r\nok".encode()


@asynccontextmanager
async def receiving(
    *answers: bytes | int, trust: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """A receiver on a port of its own."""
    receiver = Receiver(*answers)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=trust)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()


def certified(folder: Path, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's identity for these names, and the trust in it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([_general(one) for one in names]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem, private = (
        made.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    (folder / "cert.pem").write_bytes(pem + private)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
