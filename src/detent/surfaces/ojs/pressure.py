"""Jobs for a queue that is full: refused, kept waiting, or let in instead of older ones."""

from __future__ import annotations

import time
from typing import Final

from detent.engine.commands import Change
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job.table import ENDED, JobState
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import key_of
from detent.stores.select import Filter, Page
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.configs import DROPPED_FROM_MAX, Config
from detent.surfaces.ojs.desk import Desk

__all__ = ["Pressure"]

BLOCK_S: Final = 10.0
"""How long somebody is kept waiting for room."""
_LOOK_S: Final = 0.1
_BY: Final = By(Actor.SYSTEM, "ojs backpressure")


class Pressure:
    """Finds room in queues that have a bound."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def share(self, key: tuple[str, str], number: int, config: Config) -> float:
        """How full the queue is with so many more; `QUEUE_FULL` if there is no room for them."""
        bound, until = config.max_depth or 0, time.monotonic() + BLOCK_S
        while True:
            depth = await self._depth(key)
            if depth + number <= bound:
                return (depth + number) / bound
            if config.strategy == "drop_oldest" and await self._drop(key, depth + number - bound):
                continue
            is_late = config.strategy != "block" or time.monotonic() >= until
            if is_late or not await self._desk.service.pause(_LOOK_S):
                raise _full(key[1], depth, bound)

    async def _depth(self, key: tuple[str, str]) -> int:
        counts = await self._desk.engine.store.counts(key[0])
        live = [one for one in counts if one.queue == key[1] and JobState(one.state) not in ENDED]
        return sum(one.count for one in live)

    async def _drop(self, key: tuple[str, str], number: int) -> bool:
        """Discard as many of those that have been ready for longest; whether there were as many."""
        chosen = Filter(tenant=key[0], queue=key[1], state="available")
        found = await self._desk.engine.store.find(chosen, Page(DROPPED_FROM_MAX))
        oldest = sorted((one.job for one in found), key=lambda job: (job.place or 0, job.id))
        if len(oldest) < number:
            return False
        changes = [Change(key_of(job), j.Drop(), _BY) for job in oldest[:number]]
        answers = await self._desk.engine.carry_out(changes)
        return any(not isinstance(one, Refusal) for one in answers)


def _full(queue: str, depth: int, bound: int) -> Problem:
    why = f"queue {queue} holds {depth} jobs; {bound} is its bound"
    found = Problem(429, "QUEUE_FULL", why, retryable=True, queue=queue)
    return found.with_headers(
        ("retry-after", "1"),
        ("x-ojs-queue-depth", str(depth)),
        ("x-ojs-queue-bound", str(bound)),
    )
