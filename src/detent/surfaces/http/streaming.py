"""Sends a long reply piece by piece, and cuts off readers that do not read.

Nothing is kept for a reader that is behind: the next piece is made when the one before is taken.
One that takes nothing for long is cut off, and comes back with the position that it has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from detent.surfaces.http.exchange import ABORT, Receive, Scope, Send, left


async def pour(
    scope: Scope, receive: Receive, send: Send, stream: AsyncIterator[bytes], stall_s: float
) -> None:
    """All pieces, until there are no more, nobody listens, or the key of the reader is revoked."""
    leaving = asyncio.ensure_future(left(receive))
    pouring = asyncio.ensure_future(_poured(send, stream, stall_s))
    try:
        await asyncio.wait([leaving, pouring], return_when=asyncio.FIRST_COMPLETED)
        has_failed = pouring.done() and not pouring.cancelled() and pouring.exception() is not None
        if leaving.done() or has_failed:
            _cut(scope)
    finally:
        for one in (leaving, pouring):
            one.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await one


async def _poured(send: Send, stream: AsyncIterator[bytes], stall_s: float) -> None:
    try:
        async for piece in stream:
            async with asyncio.timeout(stall_s):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    finally:
        if isinstance(stream, AsyncGenerator):
            # Whoever is cut off in the middle leaves nothing open.
            await stream.aclose()
    await send({"type": "http.response.body", "body": b""})


def _cut(scope: Scope) -> None:
    """Cut the connection off where it is; only a server of ours knows how."""
    state: Mapping[str, Any] = scope.get("state", {})
    abort: Callable[[], None] | None = state.get(ABORT)
    if abort is not None:
        abort()
