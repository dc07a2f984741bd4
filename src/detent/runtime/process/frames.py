"""Messages on a stream of bytes: four bytes of length, then a JSON object with a `kind`.

Both ends use this file; it needs nothing but the standard library.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from detent.errors import ChannelBroken

Message = dict[str, Any]

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")


def frame(message: Message, limit: int = FRAME_BYTES_MAX) -> bytes:
    """The bytes of one message."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > limit:
        raise ChannelBroken(
            f"A message of {len(body)} bytes is longer than a channel takes ({limit});"
            " send less at once",
            size=len(body),
            limit=limit,
        )
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Puts messages together again from whatever pieces they arrive in."""

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now; anything else than messages is refused."""
        self._rest += data
        found = []
        while (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> Message | None:
        if len(self._rest) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._rest)
        if size > self._limit:
            raise ChannelBroken(
                f"A message of {size} bytes was announced, and {self._limit} is the limit:"
                " this is no channel of ours, or somebody writes into it",
                size=size,
                limit=self._limit,
            )
        end = _LENGTH.size + size
        if len(self._rest) < end:
            return None
        body = bytes(self._rest[_LENGTH.size : end])
        del self._rest[:end]
        return _message(body)


def _message(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ChannelBroken(
            "What came through the channel is no JSON; does anything else write into it?",
            start=body[:80].decode("utf-8", "replace"),
        ) from error
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise ChannelBroken(
            "A message must be a JSON object with a kind",
            start=body[:80].decode("utf-8", "replace"),
        )
    return message
