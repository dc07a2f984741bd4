"""Hears of news from other processes, and tells them ours, at most so often."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from detent.errors import StoreError
from detent.stores.postgres.address import Address
from detent.stores.postgres.connection import Connection, open_connection
from detent.stores.postgres.faults import FAULTS
from detent.stores.postgres.pool import Pool

CHANNEL: Final = "detent"
_ALONG_S: Final = 0.005
"""Word goes along with a lone job at most so often: NOTIFY makes commits wait for each other."""
_PAUSE_S: Final = 0.007
"""So long after the last word it goes by itself, if no lone job has come to take it along."""
_SLOW_S: Final = 0.003
"""A commit that carries word and takes longer has waited for others that do."""
_APART_S: Final = 1.0
"""So long word goes by itself then, in a transaction that waits for no disk."""
_AGAIN_S: Final = 1.0


class Word(msgspec.Struct, frozen=True):
    """What is sent along with a job: by whom, since when, and how many cries it answers."""

    name: str
    at: float
    cries: int


class Crier:
    """Tells the other processes that something may be claimable, after it was committed."""

    def __init__(self, pool: Pool, name: str) -> None:
        self._pool = pool
        self._name = name
        self._loop = asyncio.get_running_loop()
        # A signal may come while it is held, and who answers it may enqueue as well.
        self._lock = threading.RLock()
        self._sent_at = 0.0
        self._apart_until = 0.0
        self._cries = 0
        self._told = 0
        """How many of the cries others have heard of."""
        self._is_awake = False
        self._sending: asyncio.Task[None] | None = None

    def cry(self) -> None:
        """Now or in a moment; while word is waiting to be sent, more of it is the same word."""
        if self._is_first():
            self._begin()

    def cry_from_afar(self) -> None:
        """The same in any thread."""
        if self._is_first():
            # A loop that has ended meanwhile has closed the store, and nobody waits in it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin)

    def word(self) -> Word | None:
        """What to send along with what it is about; nothing if word was sent not long ago.

        Whoever takes it says that it went along, or cries.
        """
        with self._lock:
            now = time.monotonic()
            if now < max(self._sent_at + _ALONG_S, self._apart_until):
                return None
            self._sent_at = now
            return Word(self._name, now, self._cries)

    def went_along(self, word: Word) -> None:
        """It was sent with a commit, which is known now to be durable."""
        with self._lock:
            self._told = max(self._told, word.cries)
            now = time.monotonic()
            if now > word.at + _SLOW_S:
                self._apart_until = now + _APART_S

    def _is_first(self) -> bool:
        """Whether nobody is awake to send word of this."""
        with self._lock:
            self._cries += 1
            was_awake, self._is_awake = self._is_awake, True
            return not was_awake

    def _begin(self) -> None:
        self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        while await self._is_wanted():
            # Whoever does not hear it looks by itself before long.
            with suppress(StoreError):
                await self._pool.run(lambda one: one.fetch("notify", name=self._name))

    async def _is_wanted(self) -> bool:
        """Whether word is still waiting when its time has come."""
        # Meanwhile a lone job may have taken it along, and others may have come since.
        while (pause := self._sent_at + _PAUSE_S - time.monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(pause)
        with self._lock:
            self._is_awake = self._cries > self._told
            if self._is_awake:
                self._told, self._sent_at = self._cries, time.monotonic()
            return self._is_awake

    async def stop(self) -> None:
        """Send what is waiting, and nothing more."""
        if self._sending is not None:
            await self._sending


class Listener:
    """Rings when another process has sent word, and once after it could not hear for a while.

    Who only enqueues never starts to: every word would wake all who do.
    """

    def __init__(self, address: Address, name: str, ring: Callable[[], None]) -> None:
        self._address = address
        self._name = name
        self._ring = ring
        self._lost = asyncio.Event()
        self._has_begun = asyncio.Event()
        self._connection: Connection | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """Listen from now on, and go on listening; whether that was begun before."""
        if self._has_begun.is_set():
            return True
        if self._keeping is None:
            self._keeping = asyncio.ensure_future(self._keep())
            # Whoever waits for the beginning is let go, also if there is none.
            self._keeping.add_done_callback(lambda _: self._has_begun.set())
        await self._has_begun.wait()
        return False

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
            try:
                await self._listen()
            except FAULTS:
                self._has_begun.set()
                await asyncio.sleep(_AGAIN_S)
                continue
            if self._has_begun.is_set():
                self._ring()
            self._has_begun.set()
            await self._lost.wait()
