"""A run that takes too long while everybody is there to see it."""

from __future__ import annotations

from msgspec.structs import replace

from detent import Detent
from detent.testing import VirtualClock

STEP_S = 2
"""A longer silence would be one that nobody has seen, and is taken from no run."""


async def outlast(app: Detent, clock: VirtualClock, seconds: int) -> None:
    """Let so much time pass; workers beat, and upkeep looks."""
    engine = await app.engine()
    for _ in range(0, seconds, STEP_S):
        clock.advance(STEP_S)
        now, rows = engine.store.now(), await engine.store.workers()
        beats = [replace(row, alive_until=now + 15_000_000, renews=True) for row in rows]
        await engine.store.beat(beats, now=now)
        await engine.upkeep.turn()
