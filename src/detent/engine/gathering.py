"""Gathers what callers in one loop ask for at the same time, and does it as one piece.

Nobody is kept waiting for others: what has come by the time the work before is done is the next. It
is for what is done faster for many at once than for each, before any store is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from detent.errors import StoreClosed

_log = logging.getLogger(__name__)
A = TypeVar("A")
R = TypeVar("R")


class Gathering(Generic[A, R]):
    """Does `work` for all who ask; each gets their own answer, or their own error."""

    def __init__(
        self, work: Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]], most: int
    ) -> None:
        self._work = work
        self._most = most
        self._asked: list[tuple[A, Callable[[R | Exception], None]]] = []
        self._working: asyncio.Task[None] | None = None
        self._is_closed = False

    def ask(self, one: A) -> asyncio.Future[R]:
        """The answer, when it is there."""
        answered: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.tell(one, partial(_settle, answered))
        return answered

    def tell(self, one: A, hear: Callable[[R | Exception], None]) -> None:
        """The same for somebody who is called when it is there, and has no task that waits."""
        if self._is_closed:
            raise StoreClosed("The engine is closed")
        self._asked.append((one, hear))
        if self._working is None:
            self._working = asyncio.ensure_future(self._go_on())

    async def close(self) -> None:
        """Finish what was asked for, and take nothing more."""
        self._is_closed = True
        if self._working is not None:
            await self._working

    async def _go_on(self) -> None:
        while self._asked:
            taken = self._asked[: self._most]
            del self._asked[: self._most]
            try:
                answers = await self._work([one for one, _ in taken])
            except Exception as error:
                answers = [error] * len(taken)
            for (_, hear), answer in zip(taken, answers, strict=True):
                try:
                    hear(answer)
                except Exception:
                    # The others are still to be told.
                    _log.exception("somebody could not hear an answer")
        self._working = None


def _settle(answered: asyncio.Future[R], answer: R | Exception) -> None:
    # Whoever was called off is not waiting any more; what they asked for is done all the same.
    if answered.done():
        return
    if isinstance(answer, Exception):
        answered.set_exception(answer)
    else:
        answered.set_result(answer)
