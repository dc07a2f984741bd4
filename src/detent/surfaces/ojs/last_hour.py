"""Statistics of the last hour of a queue: how many ended, how long they took and waited.

What is told is true of the newest jobs alone, as many as one look may take: a queue with more ends
than that in an hour has at least that many. The exact counts by state are the store's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from detent.engine.caching import Remembered
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import JobState
from detent.stores.select import Filter, Page
from detent.surfaces.ojs.desk import Desk

_LOOK: Final = 20_000
"""How many of the newest jobs of all queues are passed over to find those of one."""
SEEN_MAX: Final = 500
"""How many jobs of each end are looked at."""
_MINUTE_US: Final = 60_000_000
_HOUR_US: Final = 60 * _MINUTE_US


class Late(msgspec.Struct, frozen=True):
    """The last hour of a queue, or of all."""

    completed_last_hour: int
    failed_last_hour: int
    avg_duration_ms: float
    avg_wait_ms: float
    throughput_per_second: float
    processed_per_minute: int
    failed_per_minute: int

    def stats(self) -> dict[str, float]:
        """What the statistics of a queue say."""
        told = msgspec.structs.asdict(self)
        return {name: told[name] for name in list(told)[:5]}

    def throughput(self) -> dict[str, int]:
        """Ends and failures per minute."""
        return {
            "processed_per_minute": self.processed_per_minute,
            "failed_per_minute": self.failed_per_minute,
        }


class Figures:
    """Looks at what has ended, not more often than anybody can read it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._known: Remembered[tuple[str, str | None], Late] = Remembered(self._late, desk.now)

    async def late(self, tenant: str, queue: str | None = None) -> Late:
        """The last hour of a queue, or of all of them."""
        return await self._known.get((tenant, queue))

    async def _late(self, key: tuple[str, str | None]) -> Late:
        now = self._desk.now()
        done = await self._ended(key, JobState.COMPLETED, now - _HOUR_US)
        bad = await self._ended(key, JobState.DISCARDED, now - _HOUR_US)
        recent, failed = (_since(some, now - _MINUTE_US) for some in (done, bad))
        return Late(
            len(done),
            len(bad),
            _mean([(job.ended_at or 0) - (job.started_at or 0) for job in done]),
            _mean([_waited(job) for job in done]),
            round(recent / 60, 3),
            recent + failed,
            failed,
        )

    async def _ended(self, key: tuple[str, str | None], state: JobState, since: int) -> list[Job]:
        chosen = Filter(tenant=key[0], queue=key[1], state=state)
        found = await self._desk.engine.store.find(chosen, Page(SEEN_MAX, look=_LOOK))
        return [one.job for one in found if (one.job.ended_at or 0) >= since]


def _since(jobs: Sequence[Job], at: int) -> int:
    return sum((job.ended_at or 0) >= at for job in jobs)


def _waited(job: Job) -> int:
    return max((job.started_at or 0) - (job.enqueued_at or job.created_at), 0)


def _mean(lengths_us: Sequence[int]) -> float:
    return round(sum(lengths_us) / len(lengths_us) / 1_000, 3) if lengths_us else 0.0
