"""What becomes of jobs, counted from the feed once somebody has asked for it.

Every server counts what happens in the whole store, so of several servers on one store any is
enough. How long a job was in a state is known if its entry was seen from here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from detent.engine.engine import Engine
from detent.engine.silence import WORKERS_MAX
from detent.lifecycle.event import Event
from detent.stores.api import Fed, Key, Stored

_SECONDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1_800, 3_600, 86_400)
_NAMES_MAX = 500
"""How many types and queues have a name of their own; the rest are `other`."""
_ENTRIES_MAX = 100_000
_EVENTS_MAX = 50_000
"""How many events one scrape counts; those after it count the rest."""
_TOLD_OF_JOBS = frozenset({"claim", "dispatch", "complete", "fail", "time_out", "lose"})
"""The events for which the job itself must be known."""
_REST = "other"
_WORKING = "running"


class _Names:
    """Labels that users make up, as many as there is room for."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= _NAMES_MAX:
                return _REST
            self._known.add(name)
        return name


class Watching:
    """Counts for one server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._states = Gauge(
            "detent_jobs", "Jobs by queue and state.", ("queue", "state"), registry=registry
        )
        self._workers = Gauge(
            "detent_workers", "Workers that are alive, by state.", ("state",), registry=registry
        )
        self._moves = Counter(
            "detent_transitions",
            "Moves of jobs, workflows and steps.",
            ("kind", "event", "source", "target"),
            registry=registry,
        )
        self._stays = Histogram(
            "detent_state_seconds",
            "How long jobs stayed in a state.",
            ("state",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._waits = Histogram(
            "detent_queue_latency_seconds",
            "How long jobs were available before they were taken.",
            ("queue",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._ends = Counter(
            "detent_attempts",
            "Attempts by type and how they ended.",
            ("type", "outcome"),
            registry=registry,
        )
        self._losses = Counter("detent_losses", "Leases that were lost.", registry=registry)
        self._entered: OrderedDict[Key, tuple[str, int]] = OrderedDict()
        self._types, self._queues = _Names(), _Names()
        self._after: int | None = None
        self._turn = asyncio.Lock()

    async def catch_up(self, engine: Engine) -> None:
        """Count what has happened since the last time, and what there is now."""
        async with self._turn:
            await self._count_on(engine)
        self._states.clear()
        for one in await engine.store.counts():
            self._states.labels(self._queues.of(one.queue), one.state).inc(one.count)
        self._workers.clear()
        # Nobody at all is a number as well: it is what whoever watches must hear of.
        self._workers.labels(_WORKING).set(0)
        for row in await engine.store.workers(WORKERS_MAX):
            self._workers.labels(row.state or _WORKING).inc()

    async def _count_on(self, engine: Engine) -> None:
        """From where the last scrape ended: however much has happened since, nothing is missed."""
        if self._after is None:
            self._after = await engine.tail.end()
        seen = 0
        async for page in engine.tail.since(self._after):
            await self._count(engine, page)
            self._after = page[-1].pos
            seen += len(page)
            if seen >= _EVENTS_MAX:
                return

    async def _count(self, engine: Engine, page: Sequence[Fed]) -> None:
        jobs = [fed.event for fed in page if fed.event.kind == "job"]
        needed = [event for event in jobs if event.name in _TOLD_OF_JOBS]
        keys = list(dict.fromkeys(map(_key, needed)))
        found = await engine.store.get(keys) if keys else []
        stored = dict(zip(keys, found, strict=True))
        for fed in page:
            event = fed.event
            if event.target is not None:
                labels = (event.kind, event.name, event.source or "new", event.target)
                self._moves.labels(*labels).inc()
            if event.kind == "job":
                self._saw(event, stored.get(_key(event)))

    def _saw(self, event: Event, stored: Stored | None) -> None:
        if event.target is None:
            return
        key = _key(event)
        state, since = self._entered.pop(key, ("", event.at))
        if state:
            self._stays.labels(state).observe((event.at - since) / 1e6)
        if event.name in ("claim", "dispatch") and state and stored is not None:
            queue = self._queues.of(stored.job.queue)
            self._waits.labels(queue).observe((event.at - since) / 1e6)
        if event.charged is not None and event.charged.losses:
            self._losses.inc()
        if event.name in ("complete", "fail", "time_out", "lose") and stored is not None:
            outcome = event.name if event.target != "retryable" else f"{event.name}_retried"
            self._ends.labels(self._types.of(stored.body.type), outcome).inc()
        self._entered[key] = (event.target, event.at)
        if len(self._entered) > _ENTRIES_MAX:
            self._entered.popitem(last=False)


def _key(event: Event) -> Key:
    return event.tenant, event.record
