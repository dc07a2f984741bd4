"""How a connection comes about: with the first of the named servers that takes writes.

Each host has its chance, and none holds up the others: one that is gone without a word answers
nothing at all. What is open is watched over by the system, for the same reason: otherwise a host
that has lost its power would be believed to be thinking for as long as anybody cares to wait.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import asyncpg

from detent.stores.postgres import address

CONNECT_S: Final = 10.0
_NEXT_S: Final = 1.0
"""How long one host may be silent until the next one is asked as well."""
_SILENT_S: Final = 15
"""How long what was sent may be unacknowledged, or a line that nobody uses dead."""
_WATCH: Final = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": _SILENT_S * 1_000,
}
_Driver: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_Opening: TypeAlias = asyncio.Task[_Driver]


class _Watched(asyncpg.Connection):
    """A connection of the driver whose socket the system watches over."""

    def __init__(self, protocol: Any, transport: asyncio.Transport, *more: Any) -> None:
        super().__init__(protocol, transport, *more)
        _watch(transport.get_extra_info("socket"))


def _watch(line: socket.socket | None) -> None:
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _WATCH.items():
        # Not every system has them all.
        if (option := getattr(socket, name, None)) is not None:
            line.setsockopt(socket.IPPROTO_TCP, option, value)


async def connect(url: str, settings: Mapping[str, Any]) -> _Driver:
    """A connection to the first host that is fit; a `ConnectionError` tells of each why not."""
    urls, opening = address.each(url), list[_Opening]()
    try:
        async with asyncio.timeout(CONNECT_S):
            return await _first(urls, opening, settings)
    except TimeoutError as error:
        # Unlike a call that is not answered, this one has certainly done nothing.
        raise ConnectionError(f"no answer within {CONNECT_S:g} s") from error
    finally:
        await _give_up(opening)


async def _first(urls: list[str], opening: list[_Opening], settings: Mapping[str, Any]) -> _Driver:
    for url in urls:
        opening.append(asyncio.create_task(_one(url, settings)))
        await asyncio.wait(opening, timeout=_NEXT_S, return_when=asyncio.FIRST_COMPLETED)
        if (found := _taken(opening)) is not None:
            return found
    while pending := [one for one in opening if not one.done()]:
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if (found := _taken(opening)) is not None:
            return found
    raise _why([one.exception() for one in opening])


async def _one(url: str, settings: Mapping[str, Any]) -> _Driver:
    return await asyncpg.connect(url, connection_class=_Watched, **settings)


def _taken(opening: list[_Opening]) -> _Driver | None:
    """One that is open, which is not among those any more that are given up."""
    fit = (one for one in opening if one.done() and one.exception() is None)
    if (found := next(fit, None)) is None:
        return None
    opening.remove(found)
    return found.result()


def _why(errors: list[BaseException | None]) -> BaseException:
    """What to say if none was fit: a server that refuses us knows more than one that is away."""
    told = [one for one in errors if one is not None]
    refusals = [one for one in told if isinstance(one, asyncpg.PostgresError)]
    if refusals or len(told) == 1:
        return (refusals or told)[0]
    return ConnectionError("; ".join(str(one) or type(one).__name__ for one in told))


async def _give_up(opening: list[_Opening]) -> None:
    for one in opening:
        one.cancel()
    if opening:
        await asyncio.wait(opening)
    for one in opening:
        if not one.cancelled() and one.exception() is None:
            one.result().terminate()
