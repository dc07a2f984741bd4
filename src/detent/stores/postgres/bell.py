"""Who waits for jobs is woken: by our own commits at once, by those of others when word comes."""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["Bell"]

_LOOK_S: Final = 1.0
"""After so long somebody looks again even if no word has come."""


class Bell:
    """Counts the moments after which something new may be claimable.

    A claim notes the count before it looks. A wait that begins after the bell has rung since then
    ends at once, so nothing that came between a claim and a wait is slept through.
    """

    def __init__(self) -> None:
        self._rung = 0
        self._looked: int | None = None
        self._waiting: set[asyncio.Future[bool]] = set()

    def look(self) -> None:
        """Somebody is about to claim."""
        self._looked = self._rung

    def ring(self) -> None:
        """Something may be claimable."""
        self._rung += 1
        self._wake(found=True)

    def stop(self) -> None:
        """Nothing will come any more: whoever waits goes away with empty hands."""
        self._wake(found=False)

    async def wait(self, timeout_s: float) -> bool:
        """Whether it is worth to look again: the bell rang, or nobody has looked for a while."""
        if self._looked is not None and self._rung > self._looked:
            return True
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.add(woken)
        try:
            return await asyncio.wait_for(woken, min(timeout_s, _LOOK_S))
        except TimeoutError:
            return timeout_s > _LOOK_S
        finally:
            self._waiting.discard(woken)

    def _wake(self, *, found: bool) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(found)
        self._waiting.clear()
