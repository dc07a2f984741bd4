"""What all stores do: refuse calls while they are closed, or with a time that is ahead."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from detent.errors import StoreClosed
from detent.lifecycle.event import Event
from detent.stores.bell import Bell
from detent.stores.bounds import need_storable, need_time
from detent.stores.shapes import Fed, Key

T = TypeVar("T")


class Alike(ABC, Generic[T]):
    """A store as far as all are alike; `_inside` is what there is only while it is open."""

    def __init__(self, clock: Callable[[], int] | None) -> None:
        self._clock = clock
        self._bell = Bell()
        self._inside: T | None = None
        self._process: int | None = None
        """Where alone it may be used; `None` if what is inside survives a fork."""

    def now(self) -> int:
        """The store's own time."""
        if self._clock is None:
            raise _closed()
        return self._clock()

    async def wait(self, timeout_s: float, seen: int | None = None) -> bool:
        """Until something that could be claimed may exist."""
        self._opened()
        return await self._bell.wait(timeout_s, seen)

    async def history(self, key: Key) -> Sequence[Event]:
        """All events of a record, oldest first."""
        [told] = await self.histories([key])
        return [fed.event for fed in told]

    @abstractmethod
    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[Fed]]:
        """The histories of many records, in order."""

    def _opened(self, now: int | None = None, rows: Sequence[object] = ()) -> T:
        """What is inside, if the caller's clock is right and these rows can be kept."""
        if self._process not in (None, os.getpid()):
            why = "The store was opened before a fork; open it again in this process"
            raise StoreClosed(why, opened_in=self._process)
        if self._inside is None:
            raise _closed()
        if now is not None:
            need_time(now, self.now())
        need_storable(rows)
        return self._inside


def wall_clock() -> int:
    """The time of this machine, in microseconds."""
    return time.time_ns() // 1_000


def _closed() -> StoreClosed:
    return StoreClosed("The store is not open: enter it with `async with` first")
