"""What several checks look at, read once: who is there, and what waits, as far as one looks.

A store may have millions of jobs. What waits is looked at by queue, the newest of each, so that one
long queue does not hide the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

import msgspec

from detent.engine.engine import Engine
from detent.engine.hurdles import is_alive
from detent.engine.secrets import keys_of
from detent.engine.silence import WORKERS_MAX
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import PARKED, JobState
from detent.lifecycle.profile import ProfileName
from detent.stores.api import Counted, Store, Stored, WorkerRow
from detent.stores.select import Filter, Only, Page

_PAGE: Final = Page(100, look=20_000)
_QUEUES_MAX: Final = 50
_TENANTS_MAX: Final = 50
_READY_MAX: Final = 10_000
"""So many available jobs of a queue are found by an index; of more the newest are not far."""
_OVER_HTTP: Final = (ProfileName.OJS, ProfileName.JOBNIK)
_FETCHED_US: Final = 5 * 60 * 1_000_000
"""What came over HTTP is mostly fetched so, by workers of which we see nothing; or nobody comes."""
_ENOUGH_S: Final = 3.0
"""For so long one goes on to the next queue."""


class Kind(NamedTuple):
    """Jobs that the same workers take."""

    tenant: str
    queue: str
    type: str


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a store: kinds of jobs that wait, and the keys that some are locked with."""

    engine: Engine
    now: int
    counts: Sequence[Counted]
    workers: Sequence[WorkerRow]
    kinds: Counter[Kind]
    locked: Counter[str]

    @property
    def alive(self) -> list[WorkerRow]:
        """The workers that were heard of in time."""
        return [row for row in self.workers if is_alive(row, self.now)]

    @property
    def tenants(self) -> list[str]:
        """The nameless one, and those who have the most jobs."""
        jobs = Counter[str]()
        for one in self.counts:
            jobs[one.tenant] += one.count
        return sorted({"", *(tenant for tenant, _ in jobs.most_common(_TENANTS_MAX))})

    def number(self, *states: str) -> int:
        """How many jobs are in these states."""
        return sum(one.count for one in self.counts if one.state in states)


async def sight_of(engine: Engine) -> Sight:
    """What there is to see now."""
    store = engine.store
    counts, kinds, locked = await store.counts(), Counter[Kind](), Counter[str]()
    async for one in waiting(store, counts):
        locked.update(keys_of(one.body.payload))
        if one.job.state is JobState.AVAILABLE and _is_for_us(one.job, store.now()):
            kinds[Kind(one.job.tenant, one.job.queue, one.body.type)] += 1
    workers = await store.workers(WORKERS_MAX)
    return Sight(
        engine=engine, now=store.now(), counts=counts, workers=workers, kinds=kinds, locked=locked
    )


def _is_for_us(job: Job, now: int) -> bool:
    """Whether workers that we can see should take it; who fetches over HTTP has some time first."""
    since = job.ready_at or job.state_at
    return job.profile not in _OVER_HTTP or now - since > _FETCHED_US


async def waiting(store: Store, counts: Sequence[Counted]) -> AsyncIterator[Stored]:
    """Some of what waits, of each queue."""
    end = time.monotonic() + _ENOUGH_S
    some = [one for one in counts if one.state in PARKED and one.count]
    for one in sorted(some, key=lambda one: -one.count)[:_QUEUES_MAX]:
        for found in await store.find(_chosen(one), _PAGE):
            yield found
        if time.monotonic() > end:
            break


def _chosen(one: Counted) -> Filter:
    is_found_at_once = one.state == JobState.AVAILABLE and one.count <= _READY_MAX
    only = Only.READY if is_found_at_once else None
    return Filter(tenant=one.tenant, queue=one.queue, state=one.state, only=only)
