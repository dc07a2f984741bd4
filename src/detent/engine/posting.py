"""One HTTP request: a POST to an address that was checked, of which only the status is read.

The standard library is enough for that, and none of the clients lets us choose the address, verify
the certificate for the name, and follow nothing, without patching it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from detent.engine.addresses import Resolve, Rules, Target, checked, resolve, target_of
from detent.errors import PostFailed

TIMEOUT_S: Final = 10.0
"""For everything together: name, connection, TLS, request, answer."""
LOOK_S: Final = 2.0
"""How long somebody who gives us an address waits for what is known of its name."""
HEAD_BYTES_MAX: Final = 16_384
_INTERIM: Final = range(100, 200)
_INTERIM_MAX: Final = 5


class Poster:
    """Posts under one set of rules."""

    def __init__(
        self,
        rules: Rules = Rules(),  # noqa: B008 - it is frozen
        *,
        resolver: Resolve = resolve,
        trust: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._rules = rules
        self._resolver = resolver
        self._trust = trust
        self._timeout_s = timeout_s
        self._look_s = look_s

    async def check(self, url: str) -> None:
        """Refuse an address that would be refused now; of a name without one nothing is known.

        Nor is of a name whose servers are slow: it is judged again with every request.
        """
        target = target_of(url)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._look_s):
                await checked(target, self._rules, self._resolver)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer; `PostFailed` if there was none in time."""
        target = target_of(url)
        try:
            async with asyncio.timeout(self._timeout_s):
                addresses = await checked(target, self._rules, self._resolver)
                reader, writer = await self._connected(target, addresses)
                try:
                    writer.write(_request(target, headers, body))
                    await writer.drain()
                    return await _status(reader)
                finally:
                    writer.close()
        except TimeoutError:
            raise PostFailed(f"{target.host} did not answer in time", why="timeout") from None
        except ssl.SSLError as error:
            raise PostFailed(f"{target.host}: TLS failed: {error.reason}", why="tls") from None
        except OSError as error:
            why = type(error).__name__
            raise PostFailed(f"{target.host} cannot be reached: {why}", why="connect") from None

    async def _connected(
        self, target: Target, addresses: Sequence[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the first of these addresses that takes one, in their order."""
        for address in addresses[:-1]:
            with suppress(OSError):
                return await self._open(target, address)
        return await self._open(target, addresses[-1])

    async def _open(
        self, target: Target, address: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """An address is not resolved again; the certificate is for the name all the same."""
        is_safe = target.scheme == "https"
        return await asyncio.open_connection(
            address,
            target.port,
            limit=HEAD_BYTES_MAX,
            ssl=self._trusted if is_safe else None,
            server_hostname=target.host if is_safe else None,
        )

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        """Whose certificates count; to read them all takes a while, so not before it is needed."""
        return self._trust or ssl.create_default_context()


def _request(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join((*lines, "", "")).encode("ascii") + body


async def _status(reader: asyncio.StreamReader) -> int:
    """The status of the first answer that is one; of the rest nothing is read."""
    for _ in range(_INTERIM_MAX):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise PostFailed("The head of the answer is too large", why="answer") from None
        except asyncio.IncompleteReadError as error:
            head = error.partial
        version, _, rest = head.partition(b" ")
        code = rest[:3]
        if not version.startswith(b"HTTP/1.") or not code.isdigit() or len(code) != len(b"200"):
            raise PostFailed("The answer is no HTTP", why="answer")
        if int(code) not in _INTERIM:
            return int(code)
    raise PostFailed("The answer never came to its point", why="answer")
