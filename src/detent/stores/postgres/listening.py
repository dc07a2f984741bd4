"""Hears of news from other processes, and tells them ours, at most so often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from detent.errors import StoreError
from detent.stores.postgres.address import Address
from detent.stores.postgres.connection import Connection, open_connection
from detent.stores.postgres.faults import FAULTS
from detent.stores.postgres.pool import Pool

CHANNEL: Final = "detent"
_PAUSE_S: Final = 0.005
"""Word is sent at most so often: NOTIFY makes transactions commit one after another."""
_QUIET_S: Final = 0.010
"""After so long a silence word goes along with what it is about."""
_SLOW_S: Final = 0.003
"""A commit that carries word and takes longer has waited for others that do."""
_APART_S: Final = 1.0
"""So long word goes by itself then, in a transaction that waits for no disk."""
_AGAIN_S: Final = 1.0


class Crier:
    """Tells the other processes that something may be claimable, after it was committed."""

    def __init__(self, pool: Pool, name: str) -> None:
        self._pool = pool
        self._name = name
        self._sent_at = 0.0
        self._apart_until = 0.0
        self.is_due = False
        """Whether word is waiting to be sent."""
        self._sending: asyncio.Task[None] | None = None

    def cry(self) -> None:
        """Now or in a moment; while word is waiting to be sent, more of it is the same word."""
        self.is_due = True
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send())

    def word(self) -> str:
        """What to send along with what it is about; nothing if word was sent not long ago.

        Whoever takes it sends it, or cries.
        """
        now = time.monotonic()
        if self.is_due or now < max(self._sent_at + _QUIET_S, self._apart_until):
            return ""
        self._sent_at = now
        return self._name

    def went_along(self) -> None:
        """The last word was sent with a commit, which is known now to be durable."""
        now = time.monotonic()
        if now > self._sent_at + _SLOW_S:
            self._apart_until = now + _APART_S

    async def _send(self) -> None:
        while self.is_due:
            await asyncio.sleep(max(0.0, self._sent_at + _PAUSE_S - time.monotonic()))
            self._sent_at = time.monotonic()
            self.is_due = False
            # Whoever does not hear it looks by itself before long.
            with suppress(StoreError):
                await self._pool.run(lambda one: one.fetch("notify", name=self._name))

    async def stop(self) -> None:
        """Send what is waiting, and nothing more."""
        if self._sending is not None:
            await self._sending


class Listener:
    """Rings when another process has sent word, and once after it could not hear for a while."""

    def __init__(self, address: Address, name: str, ring: Callable[[], None]) -> None:
        self._address = address
        self._name = name
        self._ring = ring
        self._lost = asyncio.Event()
        self._connection: Connection | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen from now on, and go on listening."""
        await self._listen()
        self._keeping = asyncio.ensure_future(self._keep())

    async def stop(self) -> None:
        """Hang up."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        if self._connection is not None:
            self._connection.drop()

    async def _listen(self) -> None:
        self._lost.clear()
        connection = await open_connection(self._address, self._address.listen_url)
        try:
            connection.driver.add_termination_listener(lambda _: self._lost.set())
            await connection.driver.add_listener(CHANNEL, self._hear)
        except BaseException:
            connection.drop()
            raise
        self._connection = connection

    def _hear(self, _connection: object, _process: int, _channel: str, payload: object) -> None:
        if payload != self._name:
            self._ring()

    async def _keep(self) -> None:
        """Listen again whenever the line was cut; what was said meanwhile is not known."""
        while True:
            await self._lost.wait()
            try:
                await self._listen()
            except FAULTS:
                await asyncio.sleep(_AGAIN_S)
            else:
                self._ring()
