"""Hands back jobs that were claimed for somebody who has gone, without waiting for a lease.

Whoever claims may be called off before the answer comes, or be gone when it has come. Nothing has
begun then, so nothing is charged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from detent.engine.commands import Change
from detent.errors import StoreError
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import PROFILES, Drain
from detent.stores.api import Stepped, Stored, key_of

INTERRUPTED: Final = "INTERRUPTED"
"""What a job fails with that may not go back."""
_BY: Final = By(Actor.SYSTEM, "engine")
_WHY: Final = "whoever claimed it was gone before it could begin"
_log = logging.getLogger(__name__)
CarryOut = Callable[[Sequence[Change]], Awaitable[Sequence[j.Answer]]]


class Returning:
    """Gives jobs back, behind the back of whoever has no time for it."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out
        self._claims: set[asyncio.Future[Stepped]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def claimed(self, claiming: asyncio.Future[Stepped]) -> Stepped:
        """The answer to a claim; if nobody waits for it any more, its jobs go back."""
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self._claims.add(claiming)
            claiming.add_done_callback(self._unclaimed)
            raise

    def soon(self, jobs: Sequence[Stored]) -> None:
        """Give these back."""
        if jobs:
            task = asyncio.ensure_future(self._give_back(jobs))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish what was begun."""
        if self._claims:
            await asyncio.wait(self._claims)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _unclaimed(self, claiming: asyncio.Future[Stepped]) -> None:
        self._claims.discard(claiming)
        if not claiming.cancelled() and claiming.exception() is None:
            self.soon(claiming.result().claimed.jobs)

    async def _give_back(self, jobs: Sequence[Stored]) -> None:
        try:
            await self._carry_out([returned(one, _BY, _WHY) for one in jobs])
        except StoreError as error:
            # Their leases see to it, later.
            _log.warning("%d jobs could not be given back: %s", len(jobs), error.message)


def returned(stored: Stored, by: By, reason: str) -> Change:
    """What becomes of a job that nobody runs, though somebody has it."""
    job = stored.job
    may_return = PROFILES[job.profile].drain is Drain.HAND_BACK
    back = j.HandBack(lease=job.lease) if may_return else j.Fail(lease=job.lease, code=INTERRUPTED)
    return Change(key_of(job), back, by, reason=reason, known=stored)
