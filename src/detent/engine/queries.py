"""Questions: why a job is where it is, and what there is to see in a store.

Everything is read from what is stored; nothing is changed, and nothing is guessed. What nobody
recorded is answered with unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from detent.engine import switches
from detent.engine.ending import Ending, Holding, ending_of, holding_of
from detent.engine.hurdles import Ahead, Door, Facts, Hurdle, expected_at, hurdles, in_the_way
from detent.engine.silence import WORKERS_MAX
from detent.engine.story import Story, story_of
from detent.errors import UnknownJob
from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, Lease
from detent.lifecycle.job.table import ENDED, IN_HANDS, JobState
from detent.stores.api import GateKind, Key, Limited, LimitKind, Store, Stored, key_of
from detent.stores.select import Filter, Page

AHEAD_MAX = 1_000
"""How many jobs are looked at to count those that go first; a longer queue is told as such."""
_COUNT_PAGE = 200
"""How many jobs are read at a time to be counted; they come with all that they carry."""
_LOOK = 20_000
"""How many jobs are passed over for an answer that may be left out."""
_AHEAD_PAGE = Page(_COUNT_PAGE, look=_LOOK)
_PACE_JOBS = 50
_PACE_US = 15 * 60 * 1_000_000
"""Ends that lie further back say nothing about the pace of today."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is: the hurdles of one that waits, who has it, or how it ended.

    `expected_at` is when it may start, if every hurdle in its way clears by itself.
    """

    job: Job
    at: int
    answer: str
    is_waiting: bool = False
    hurdles: tuple[Hurdle, ...] = ()
    expected_at: int | None = None
    holding: Holding | None = None
    ending: Ending | None = None


class Shown(msgspec.Struct, frozen=True):
    """A job with its whole history and what it comes to."""

    stored: Stored
    history: Sequence[Event]
    story: Story


class Listing(msgspec.Struct, frozen=True):
    """A page of jobs, newest first; `after` asks for the next one, `None` if this was the last."""

    jobs: Sequence[Stored]
    after: Key | None = None


class QueueRow(msgspec.Struct, frozen=True):
    """A queue: how many jobs of each state it has, whether it is paused, and its limit."""

    name: str
    counts: dict[str, int]
    door: Door = Door()
    limited: Limited | None = None


class Queries:
    """Everything that can be asked without changing anything."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def why(self, key: Key) -> Why:
        """Why this job is where it is; `UnknownJob` if there is none."""
        stored = await self._stored(key)
        job, now = stored.job, self._store.now()
        if job.state in ENDED:
            ending = ending_of(stored, await self._store.history(key))
            return Why(job=job, at=now, answer=ending.says, ending=ending)
        if job.state in IN_HANDS:
            holding = holding_of(stored, await self._lease(job), now)
            return Why(job=job, at=now, answer=holding.says, holding=holding)
        return _waiting(await self._facts(stored, now))

    async def show(self, key: Key) -> Shown:
        """A job and its story; `UnknownJob` if there is none."""
        stored = await self._stored(key)
        history = await self._store.history(key)
        return Shown(stored, history, story_of(stored.job, history, self._store.now()))

    async def jobs(self, chosen: Filter, page: Page) -> Listing:
        """The jobs that fit, newest first, page by page."""
        found = await self._store.find(chosen, Page(page.limit + 1, page.after))
        shown = found[: page.limit]
        is_last = len(found) <= page.limit or not shown
        return Listing(shown, None if is_last else (shown[-1].job.tenant, shown[-1].job.id))

    async def count(self, chosen: Filter) -> int:
        """How many jobs fit: as the store counts them by queue and state, else by reading them."""
        if chosen == Filter(tenant=chosen.tenant, queue=chosen.queue, state=chosen.state):
            return sum(
                one.count
                for one in await self._store.counts(chosen.tenant)
                if chosen.queue in (None, one.queue) and chosen.state in (None, one.state)
            )
        found = await self._store.find(chosen, Page(_COUNT_PAGE))
        count = len(found)
        while len(found) == _COUNT_PAGE:
            found = await self._store.find(chosen, Page(_COUNT_PAGE, key_of(found[-1].job)))
            count += len(found)
        return count

    async def queues(self, tenant: str = "") -> list[QueueRow]:
        """Every queue that has jobs, a gate or a limit, by name."""
        counts: dict[str, dict[str, int]] = {}
        for one in await self._store.counts(tenant):
            counts.setdefault(one.queue, {})[one.state] = one.count
        doors = await self.doors(tenant, GateKind.QUEUE)
        limits = {
            one.row.name: one
            for one in await self._store.limits(tenant)
            if one.row.kind is LimitKind.QUEUE
        }
        names = sorted({*counts, *doors, *limits})
        return [
            QueueRow(name, counts.get(name, {}), doors.get(name, Door()), limits.get(name))
            for name in names
        ]

    # --- what a waiting job stands before -------------------------------------------------------

    async def _facts(self, stored: Stored, now: int) -> Facts:
        job, body = stored.job, stored.body
        flow = None
        if job.workflow is not None:
            [flow] = await self._store.flows([(job.tenant, job.workflow)])
        return Facts(
            stored=stored,
            now=now,
            queue=await self._door(job.tenant, GateKind.QUEUE, job.queue),
            type=await self._door(job.tenant, GateKind.TYPE, body.type),
            flow=flow,
            limits=await self._limits(stored),
            ahead=await self._ahead(job, now),
            workers=tuple(await self._store.workers(WORKERS_MAX)),
        )

    async def _door(self, tenant: str, kind: GateKind, name: str) -> Door:
        return (await self.doors(tenant, kind, name)).get(name, Door())

    async def doors(self, tenant: str, kind: GateKind, only: str | None = None) -> dict[str, Door]:
        """The gates of a kind by name, each with who moved it last."""
        gates = {
            row.name: row.gate
            for row in await self._store.gates(tenant)
            if row.kind is kind and only in (None, row.name)
        }
        asked = [(switches.KIND, tenant, switches.name_of_gate(kind, name)) for name in gates]
        records = await self._store.record(asked) if asked else []
        found = zip(gates.items(), map(switches.read, records), strict=True)
        return {name: Door(gate, switch.latest) for (name, gate), switch in found}

    async def _limits(self, stored: Stored) -> tuple[Limited, ...]:
        """The limits that the job stands under, its queue's first."""
        names = [(LimitKind.QUEUE, stored.job.queue), (LimitKind.KEY, stored.body.key)]
        found = {(x.row.kind, x.row.name): x for x in await self._store.limits(stored.job.tenant)}
        return tuple(found[name] for name in names if name in found)

    async def _ahead(self, job: Job, now: int) -> Ahead:
        """Of the ready jobs of its queue, those that come first; what cannot start is passed by."""
        chosen = Filter(tenant=job.tenant, queue=job.queue, state=JobState.AVAILABLE)
        ready, seen, number = await self.count(chosen), 0, 0
        page: Page | None = _AHEAD_PAGE
        while page is not None and seen < min(ready, AHEAD_MAX):
            found = await self._store.find(chosen, page)
            first = [one for one in found if not one.job.held and _turn(one.job) < _turn(job)]
            number, seen = number + len(await self._startable(job.tenant, first)), seen + len(found)
            is_last = len(found) < page.limit
            page = None if is_last else replace(page, after=key_of(found[-1].job))
        return Ahead(number, seen >= ready, await self._pace(job, now))

    async def _startable(self, tenant: str, found: Sequence[Stored]) -> list[Stored]:
        """Those whose type is not paused and whose step, if they have one, is open."""
        gates = await self._store.gates(tenant)
        paused = {row.name for row in gates if row.kind is GateKind.TYPE and row.gate.closed}
        keys = sorted({(tenant, one.job.workflow) for one in found if one.job.workflow is not None})
        flows = await self._store.flows(keys) if keys else []
        closed = {
            step.id
            for flow in flows
            if flow is not None
            for step in flow.steps.values()
            if not w.is_claimable(flow.workflow, step)
        }
        return [x for x in found if x.body.type not in paused and x.job.step not in closed]

    async def _pace(self, job: Job, now: int) -> int | None:
        """The time from one end to the next among the newest jobs of the queue."""
        chosen = Filter(tenant=job.tenant, queue=job.queue, state=JobState.COMPLETED)
        found = await self._store.find(chosen, Page(_PACE_JOBS, look=_LOOK))
        ends = [one.job.ended_at for one in found if (one.job.ended_at or 0) > now - _PACE_US]
        oldest = min((end for end in ends if end is not None), default=None)
        return None if oldest is None else max(now - oldest, 1) // len(ends)

    async def _lease(self, job: Job) -> Lease | None:
        """Until when its holder is trusted, as far as anybody knows."""
        if job.wire:
            [lease] = await self._store.leases([job.lease or ""])
            return lease
        rows = [row for row in await self._store.workers(WORKERS_MAX) if row.id == job.holder]
        return Lease(rows[0].alive_until) if rows else None

    async def _stored(self, key: Key) -> Stored:
        [stored] = await self._store.get([key])
        if stored is None:
            tenant, name = key
            why = "another store, another tenant, or it was forgotten"
            raise UnknownJob(f"There is no job {name}: {why}", id=name, tenant=tenant)
        return stored


def _waiting(facts: Facts) -> Why:
    found = hurdles(facts)
    failing = in_the_way(found)
    answer = failing[0].says if failing else "Nothing is in its way: the next free worker takes it."
    return Why(
        job=facts.stored.job,
        at=facts.now,
        answer=answer,
        is_waiting=True,
        hurdles=found,
        expected_at=expected_at(found, facts.now),
    )


def _turn(job: Job) -> tuple[int, bool, int, str]:
    """Priority, then place; one that is not ready yet has no place, and comes last."""
    return -job.priority, job.place is None or job.state is not JobState.AVAILABLE, *_place(job)


def _place(job: Job) -> tuple[int, str]:
    return job.place or 0, job.id
