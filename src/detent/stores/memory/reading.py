"""The side of the model that only looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from detent.lifecycle import job, seal, worker, workflow
from detent.stores import api, legal, quotas
from detent.stores.alike import Alike, wall_clock
from detent.stores.api import Fed, Key, Logged, Named, Stored, WorkerRow
from detent.stores.chosen import is_chosen
from detent.stores.memory.tables import Tables
from detent.stores.select import FIRST_PAGE, Filter, Page
from detent.stores.shapes import head_of

T = TypeVar("T")
K = TypeVar("K", str, Key, Named)


class Reading(Alike[Tables]):
    """The side that only looks."""

    def __init__(self, clock: Callable[[], int] | None) -> None:
        super().__init__(clock or wall_clock)
        self._tables = Tables(self._bell)

    @property
    def _all(self) -> Tables:
        """All there is, while the store is open."""
        return self._opened()

    async def get(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        return [self._all.jobs.get(key) for key in keys]

    async def heads(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        found = await self.get(keys)
        return [None if one is None else head_of(one) for one in found]

    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        found = {k: x for k, x in self._all.jobs.items() if is_chosen(x, chosen, self._all.flows)}
        return _paged(found if legal.is_storable((chosen, page.after)) else {}, page)

    async def held_by(self, holder: str, limit: int, but: Sequence[str] = ()) -> Sequence[Stored]:
        held = [one for _, one in sorted(self._all.jobs.items()) if one.job.holder == holder]
        return first(limit, (one for one in held if one.job.lease not in (None, *but)))

    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        jobs = [one.job for one in self._all.jobs.values() if tenant in (None, one.job.tenant)]
        counted = Counter((one.tenant, one.queue, one.state.value) for one in jobs)
        return [api.Counted(*where, number) for where, number in sorted(counted.items())]

    async def weight(self, tenant: str, queue: str) -> int:
        mine = await self.find(Filter(tenant=tenant, queue=queue), Page(len(self._all.jobs)))
        return sum(len(x.body.payload.encode()) for x in mine if x.job.ended_at is None)

    async def keys(self, after: Key | None = None, limit: int = 1_000) -> Sequence[Key]:
        return first(limit, (key for key in sorted(self._all.jobs) if key > (after or ())))

    async def leases(self, leases: Sequence[str]) -> Sequence[job.Lease | None]:
        return [self._all.leases.get(lease) for lease in leases]

    async def flows(self, keys: Sequence[Key]) -> Sequence[workflow.Flow | None]:
        return [self._all.flows.get(key) for key in keys]

    async def find_workflows(
        self, tenant: str | None = None, state: str | None = None, page: Page = FIRST_PAGE
    ) -> Sequence[workflow.Workflow]:
        mine = {key: x.workflow for key, x in self._all.flows.items() if tenant in (None, key[0])}
        return _paged({key: one for key, one in mine.items() if state in (None, one.state)}, page)

    async def records(
        self, kind: str, tenant: str = "", after: str | None = None, limit: int = 1_000
    ) -> Sequence[api.Record]:
        named = sorted(self._all.records.items())
        found = [record for name, (record, _) in named if name[:2] == (kind, tenant)]
        return first(limit, (one for one in found if after is None or one.id > after))

    async def record(self, keys: Sequence[Named]) -> Sequence[api.Record | None]:
        return [self._all.record_of(key)[0] for key in keys]

    async def gates(self, tenant: str = "") -> Sequence[api.GateRow]:
        return [row for name, row in sorted(self._all.gates.items()) if name[0] == tenant]

    async def limits(self, tenant: str = "") -> Sequence[api.Limited]:
        return [self._limited(name) for name in sorted(self._all.limits) if name[0] == tenant]

    def _limited(self, name: Named) -> api.Limited:
        """The limit of that name, what has started under it, and how many jobs are in hands."""
        held = [one for one in self._all.jobs.values() if one.job.lease is not None]
        active = sum(name in self._limits_of(one) for one in held)
        return api.Limited(self._all.limits[name], active, self._all.used.get(name, api.Used()))

    def _limits_of(self, stored: Stored) -> list[Named]:
        """The limits that the job stands under, if they exist."""
        return quotas.names_of(stored.job.tenant, stored.job.queue, stored.body.key)

    async def workers(self, limit: int = 1_000, *, gone: bool = False) -> Sequence[WorkerRow]:
        rows = [row for row in self._all.workers.values() if row.lost is gone]
        rows.sort(key=lambda row: row.id, reverse=gone)
        return first(limit, sorted(rows, key=lambda row: -(row.ended_at or row.alive_until)))

    async def overdue(self, *, now: int, limit: int = 100) -> Sequence[WorkerRow]:
        rows = sorted(self._opened(now).workers.values(), key=lambda row: (row.alive_until, row.id))
        return first(limit, (row for row in rows if row.alive_until <= now and not row.lost))

    async def instances(self, keys: Sequence[Key]) -> Sequence[worker.Instance | None]:
        return [self._all.instances.get(key) for key in keys]

    async def find_instances(
        self, slot: str | None = None, after: Key | None = None, limit: int = 1_000
    ) -> Sequence[worker.Instance]:
        found = [one for key, one in sorted(self._all.instances.items()) if key > (after or ())]
        return first(limit, (one for one in found if slot in (None, one.slot)))

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[Fed]]:
        return [list(self._all.events.get(key, ())) for key in keys]

    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[Fed]:
        fed = [fed for one in self._all.events.values() for fed in one if fed.pos > after]
        return first(limit, sorted(fed, key=lambda fed: fed.pos))

    async def leaves(self, after: int = 0, limit: int = 10_000) -> Sequence[tuple[int, bytes]]:
        return first(limit, (leaf for leaf in self._all.leaves if leaf[0] > after))

    async def blocks(self, after: int = 0, limit: int = 1_000) -> Sequence[seal.Block]:
        return first(limit, (block for block in self._all.blocks if block.number > after))

    async def logs(self, key: Key, after: int = 0, limit: int = 1_000) -> Sequence[Logged]:
        return first(limit, (x for x in self._all.lines if x.key == key and x.cursor > after))

    async def log_tail(self, after: int = 0, limit: int = 1_000) -> Sequence[Logged]:
        return first(limit, (one for one in self._all.lines if one.pos > after))


def first(limit: int, found: Iterable[T]) -> list[T]:
    """At most so many."""
    return list(found)[: max(limit, 0)]


def due(by: int, limit: int, moments: Iterable[tuple[int | None, K]]) -> list[K]:
    """Whose moment has come by then, the longest ago first, and at most so many."""
    over = sorted((at, key) for at, key in moments if at is not None and at <= by)
    return [key for _, key in first(limit, over)]


def _paged(found: dict[Key, T], page: Page) -> list[T]:
    """Newest first: ids are time-ordered, and the tenant breaks a tie."""
    newest = sorted(found, key=lambda key: key[::-1], reverse=True)
    return first(page.limit, (found[key] for key in newest if page.is_after(*key)))
