"""Server-sent events: how frames are written, and how many streams there may be at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from detent.surfaces.http.exchange import Reply
from detent.surfaces.http.problems import Problem

TYPE: Final = "text/event-stream"
RETRY: Final = b"retry: 3000\n"
"""The first that a reader hears, as part of the first event: when it may come back, in ms."""
BEAT: Final = b":heartbeat\n\n"
"""A comment: proxies see that the stream is alive, readers see nothing."""
_POSITION_DIGITS: Final = 18


class Places:
    """The streams of one surface: one too many is refused."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken = 0

    def reply(self, frames: AsyncIterator[bytes]) -> Reply:
        """The reply that pours these frames."""
        if self.taken >= self._most:
            found = Problem(429, "rate_limited", "too many streams are open", retryable=True)
            raise found.with_headers(("retry-after", "5"))
        headers = (("x-accel-buffering", "no"),)
        return Reply(200, type=TYPE, headers=headers, stream=self._counted(frames))

    async def _counted(self, frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.taken += 1
        try:
            async for one in frames:
                yield one
        finally:
            self.taken -= 1
            close = getattr(frames, "aclose", None)
            if close is not None:
                await close()


def frame(event: str, data: Any, id_: str | None = None) -> bytes:
    """One event; its data is JSON, which has no line breaks of its own."""
    body = b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(data))
    return body if id_ is None else b"id: %s\n%s" % (id_.encode(), body)


def last_seen(header: str | None, asked: str | None) -> int:
    """The position that a reader has seen; of header and question the later one.

    A browser comes back to the address that it was given, with the newer position in the header.
    """
    return max(_position("Last-Event-ID", header), _position("cursor", asked))


def _position(name: str, text: str | None) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > _POSITION_DIGITS:
        raise Problem(400, "invalid_request", f"{name} must be a position", field=name)
    return int(text)
