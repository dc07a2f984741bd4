"""A few shared connections, opened when they are needed and replaced when they are lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from detent.errors import StoreClosed
from detent.stores.postgres.address import Address
from detent.stores.postgres.connection import Connection, open_connection
from detent.stores.postgres.faults import FAULTS, UNFIT, is_clash, is_lost, translated

T = TypeVar("T")
PATIENCE_S: Final = 30.0
"""How long a call tries again while the server is away."""
_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5)
_CLASHES_MAX: Final = 10
Operation = Callable[[Connection], Awaitable[T]]


class Pool:
    """Runs operations, each on one connection, at most so many at a time.

    An operation whose connection is lost is run again on another, so it must be such that a second
    run does no harm when the first was committed after all. Each has patience of its own; with
    `patience_s` they share that much from the moment at which the server went away, so that those
    who come later are told at once. `meet` is called when a
    connection was opened: perhaps another server is at its end.
    """

    def __init__(
        self,
        address: Address,
        size: int,
        patience_s: float | None = None,
        meet: Callable[[], None] = lambda: None,
    ) -> None:
        self._address = address
        self._meet = meet
        self._patience_s = patience_s
        self._away_at: float | None = None
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._closing = asyncio.Event()
        self._running = 0
        self._is_quiet = asyncio.Event()
        self._is_quiet.set()

    async def run(self, operation: Operation[T]) -> T:
        """The answer of the operation; its errors in our words."""
        self._running += 1
        self._is_quiet.clear()
        try:
            async with self._slots:
                return await self._patiently(operation)
        except FAULTS as error:
            raise translated(error) from error
        finally:
            self._running -= 1
            if not self._running:
                self._is_quiet.set()

    async def close(self) -> None:
        """Refuse what has not begun, wait for what has, then close every connection."""
        self._closing.set()
        try:
            await self._is_quiet.wait()
            while self._idle:
                await self._idle.pop().close()
        finally:
            # Also when the server is gone, or whoever closes it is called off.
            self._forget_idle()

    async def _patiently(self, operation: Operation[T]) -> T:
        """Once more when the connection was lost, until the patience is at an end."""
        away_at: float | None = None
        tries = clashes = 0
        while True:
            if self._closing.is_set():
                raise StoreClosed("The store was closed before this call was begun")
            try:
                return await self._once(operation)
            except FAULTS as error:
                if is_clash(error) and clashes < _CLASHES_MAX:
                    clashes += 1
                    continue
                if not is_lost(error):
                    raise
                away_at = away_at or time.monotonic()
                if self._is_enough(away_at):
                    raise
            self._forget_idle()
            await self._pause(tries)
            tries += 1

    def _is_enough(self, away_at: float) -> bool:
        """Whether a call that found the server away at this moment has tried for long enough."""
        if self._patience_s is None:
            return time.monotonic() >= away_at + PATIENCE_S
        self._away_at = self._away_at or away_at
        return time.monotonic() >= self._away_at + self._patience_s

    async def _once(self, operation: Operation[T]) -> T:
        connection = self._idle.pop() if self._idle else await self._new()
        try:
            answer = await operation(connection)
        except (*UNFIT, *FAULTS) as error:
            if is_lost(error) or isinstance(error, TimeoutError):
                connection.drop()
            else:
                self._idle.append(connection)
            raise
        except Exception:
            self._idle.append(connection)
            raise
        except BaseException:
            # Whoever is called off in the middle leaves a connection that nobody can judge.
            connection.drop()
            raise
        self._idle.append(connection)
        self._away_at = None
        return answer

    async def _new(self) -> Connection:
        connection = await open_connection(self._address)
        self._meet()
        return connection

    def _forget_idle(self) -> None:
        """When one is lost, those that were idle with it are hardly better."""
        for connection in self._idle:
            connection.drop()
        self._idle.clear()

    async def _pause(self, tries: int) -> None:
        pause = _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]
        try:
            await asyncio.wait_for(self._closing.wait(), pause)
        except TimeoutError:
            return
