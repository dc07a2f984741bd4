"""New jobs of moulds from many callers of one loop: made together, and stored together.

Each caller asks for one job. Whatever was asked for while the loop went round, or while the jobs
before were stored, gets its names in one go and is one call to the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from detent.engine.identity import Identity
from detent.engine.moulds import Mould, moulded
from detent.errors import StoreClosed, Unstorable
from detent.stores.api import RECORDS_MAX, Committed, Outcome, Own, Store
from detent.stores.births import Birth

__all__ = ["Press"]

_Asked = tuple[tuple[Mould, str], asyncio.Future[Birth]]


class Press:
    """Makes and stores jobs of moulds."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._identity = identity
        self._asked: list[_Asked] = []
        self._working: asyncio.Task[None] | None = None
        self._is_closed = False

    def ask(self, mould: Mould, payload: str) -> asyncio.Future[Birth]:
        """The job with these arguments, once it is durable."""
        if self._is_closed:
            raise StoreClosed("The engine is closed")
        answered: asyncio.Future[Birth] = asyncio.get_running_loop().create_future()
        self._asked.append(((mould, payload), answered))
        if self._working is None:
            self._working = asyncio.ensure_future(self._work())
        return answered

    async def close(self) -> None:
        """Finish what was asked for, and take nothing more."""
        self._is_closed = True
        if self._working is not None:
            await self._working

    async def _work(self) -> None:
        while self._asked:
            taken, self._asked = self._asked, []
            for at in range(0, len(taken), RECORDS_MAX):
                await self._stored(taken[at : at + RECORDS_MAX])
        self._working = None

    async def _stored(self, taken: Sequence[_Asked]) -> None:
        try:
            births = moulded([call for call, _ in taken], self._identity)
            stepped = await self._store.step(births, now=self._store.now())
        except Exception as error:
            for _, answered in taken:
                if not answered.done():
                    answered.set_exception(error)
            return
        for (_, answered), birth, outcome in zip(taken, births.rows, stepped.outcomes, strict=True):
            # Whoever was called off is not waiting any more; their job is there all the same.
            if not answered.done():
                _settle(answered, birth, outcome)


def _settle(answered: asyncio.Future[Birth], birth: Birth, outcome: Outcome) -> None:
    if isinstance(outcome, Committed | Own):
        answered.set_result(birth)
    else:
        name = birth[1]
        answered.set_exception(Unstorable(f"{name} cannot be stored: {outcome}", id=name))
