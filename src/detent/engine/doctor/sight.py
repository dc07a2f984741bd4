"""What several checks look at, read once: who is there, and what waits, as far as one looks.

A store may have millions of jobs. What waits is looked at by queue, the newest of each, so that one
long queue does not hide the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from detent.engine.engine import Engine
from detent.engine.hurdles import is_alive
from detent.engine.secrets import keys_of
from detent.engine.upkeep import WORKERS_MAX
from detent.lifecycle.job.table import PARKED, JobState
from detent.stores.api import Counted, WorkerRow
from detent.stores.select import Filter, Page

_PAGE: Final = Page(100, look=20_000)
_QUEUES_MAX: Final = 50


class Kind(NamedTuple):
    """Jobs that the same workers take."""

    tenant: str
    queue: str
    type: str


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a store. `kinds` are those of available jobs, `locked` the keys of all."""

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
        """Everybody who has jobs, and the nameless one."""
        return sorted({"", *(one.tenant for one in self.counts)})

    def number(self, *states: str) -> int:
        """How many jobs are in these states."""
        return sum(one.count for one in self.counts if one.state in states)


async def sight_of(engine: Engine) -> Sight:
    """What there is to see now."""
    store = engine.store
    counts, kinds, locked = await store.counts(), Counter[Kind](), Counter[str]()
    waiting = [one for one in counts if one.state in PARKED and one.count]
    for one in sorted(waiting, key=lambda one: -one.count)[:_QUEUES_MAX]:
        chosen = Filter(tenant=one.tenant, queue=one.queue, state=one.state)
        for found in await store.find(chosen, _PAGE):
            locked.update(keys_of(found.body.payload))
            if one.state == JobState.AVAILABLE:
                kinds[Kind(one.tenant, one.queue, found.body.type)] += 1
    workers = await store.workers(WORKERS_MAX)
    return Sight(
        engine=engine, now=store.now(), counts=counts, workers=workers, kinds=kinds, locked=locked
    )
