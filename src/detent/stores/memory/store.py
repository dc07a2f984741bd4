"""The store in memory: what is due, what is said, and all that only looks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from detent.errors import BadUrl
from detent.lifecycle import seal
from detent.lifecycle.event import Event
from detent.lifecycle.job import Lease
from detent.lifecycle.job.table import PARKED
from detent.lifecycle.seal import Block
from detent.lifecycle.worker import Instance
from detent.lifecycle.workflow import Flow, Workflow
from detent.stores import api
from detent.stores.api import (
    Due,
    Fed,
    Key,
    Line,
    Logged,
    Note,
    Record,
    Store,
    Stored,
    WorkerRow,
    key_of,
)
from detent.stores.legal import is_storable
from detent.stores.memory.keeping import Keeping
from detent.stores.select import FIRST_PAGE, Filter, Page

__all__ = ["MemoryStore", "connect"]

T = TypeVar("T")


def connect(
    url: str,
    clock: Callable[[], int] | None = None,
    patience_s: float | None = None,  # noqa: ARG001 - memory is never away
) -> Store:
    """A new, empty store; its address is `memory:` and nothing more."""
    if url != "memory:":
        raise BadUrl(f"A store in memory has no path: write memory: instead of {url}", url=url)
    return MemoryStore(clock or (lambda: time.time_ns() // 1_000))


class MemoryStore(Keeping):
    """Everything in dictionaries; gone with the object, not with its closing."""

    has_transactions = False

    async def __aenter__(self) -> Store:
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._all.bell.stop()

    # --- the side that changes something ---------------------------------------------------------

    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[Due]:
        jobs = self._check(now).jobs
        since = {key: self._due_since(one) for key, one in jobs.items()}
        due = sorted((at, key) for key, at in since.items() if at is not None and at <= now)
        # Whatever is written to a job that was handed out frees it.
        free = [key for _, key in due if self._all.handed_out.get(key, now) <= now]
        return [self._hand_out(key, now + hold_us) for key in free[: max(limit, 0)]]

    def _due_since(self, stored: Stored) -> int | None:
        """Its `wake_at`; a job in lost hands or in a dead step has been due since ever."""
        return 0 if self._lost_holder(stored) or self._is_swept(stored) else stored.wake_at

    def _lost_holder(self, stored: Stored) -> WorkerRow | None:
        row = self._all.workers.get(stored.job.holder or "")
        is_held = stored.job.lease is not None and not stored.job.wire
        return row if is_held and row is not None and row.lost else None

    def _is_swept(self, stored: Stored) -> bool:
        job = stored.job
        where = (job.tenant, job.workflow or "", job.step or "")
        return job.state in PARKED and where in self._all.swept

    def _hand_out(self, key: Key, until: int) -> Due:
        stored = self._all.jobs[key] = replace(self._all.jobs[key], wake_at=until)
        self._all.handed_out[key] = until
        lease = None if stored.job.lease is None else self._all.lease_of(stored.job)
        is_swept, holder = self._is_swept(stored), self._lost_holder(stored)
        return Due(stored, lease, self._all.gate_of(stored), is_swept, holder)

    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[Record]:
        self._check(now)
        waking = [(record.wake_at, name) for name, (record, _) in self._all.records.items()]
        due = sorted((at, name) for at, name in waking if at is not None and at <= now)
        taken = [name for _, name in due[: max(limit, 0)]]
        for name in taken:
            record, command_id = self._all.records[name]
            self._all.records[name] = (replace(record, wake_at=now + hold_us), command_id)
        return [self._all.records[name][0] for name in taken]

    async def note(self, notes: Sequence[tuple[Key, str, Note]], *, now: int) -> Sequence[bool]:
        self._check(now)
        held = {(key, stored.job.lease) for key, stored in self._all.jobs.items()}
        for key, lease, note in notes:
            if (key, lease) in held:
                self._all.jobs[key] = replace(self._all.jobs[key], note=note)
        return [(key, lease) in held for key, lease, _ in notes]

    async def extend(self, leases: Sequence[tuple[str, int]], *, now: int) -> Sequence[bool]:
        self._check(now)
        return [self._extend(lease, until) for lease, until in leases]

    def _extend(self, lease: str, until: int) -> bool:
        """An end that comes earlier than anybody would look makes the job due earlier."""
        if lease not in self._all.leases:
            return False
        self._all.leases[lease] = until
        for key, one in self._all.jobs.items():
            is_later = one.wake_at is None or until < one.wake_at
            if is_later and one.job.wire and one.job.lease == lease:
                self._all.jobs[key] = replace(one, wake_at=until)
                self._all.handed_out.pop(key, None)
        return True

    async def set_gates(self, gates: Sequence[api.GateRow], *, now: int) -> None:
        self._check(now, gates)
        self._all.switch(gates, ())

    async def set_limits(self, limits: Sequence[api.LimitRow], *, now: int) -> None:
        self._check(now, limits)
        self._all.switch((), limits)

    async def seal(self, *, limit: int = 10_000) -> Block | None:
        done = self._all.leaves[-1][0] if self._all.leaves else 0
        chosen = [(fed.pos, seal.leaf(fed.event)) for fed in self._fed(done, limit)]
        if not chosen:
            return None
        last, skipped = len(self._all.blocks), seal.skip_of(len(self._all.blocks) + 1)
        before, skip = ([None, *self._all.blocks][number] for number in (last, skipped))
        self._all.blocks.append(seal.seal([leaf for _, leaf in chosen], before, skip))
        self._all.leaves += chosen
        return self._all.blocks[-1]

    async def append_logs(self, lines: Sequence[tuple[Key, Line]]) -> Sequence[int]:
        self._check()
        return [self._all.log(key, line) for key, line in lines]

    # --- the side that only looks ----------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        return [self._check().jobs.get(key) for key in keys]

    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        if not is_storable((chosen, page.after)):
            return []
        fitting = [one for one in self._check().jobs.values() if _is_chosen(one, chosen)]
        return _page(fitting, lambda one: key_of(one.job), page)

    async def held_by(self, holder: str, limit: int) -> Sequence[Stored]:
        jobs = self._check().jobs
        held = [key for key, one in jobs.items() if one.job.lease and one.job.holder == holder]
        return [jobs[key] for key in sorted(held)[: max(limit, 0)]]

    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        jobs = [one.job for one in self._check().jobs.values() if tenant in (None, one.job.tenant)]
        counted = Counter((job.tenant, job.queue, job.state.value) for job in jobs)
        return [api.Counted(*where, count) for where, count in sorted(counted.items())]

    async def leases(self, leases: Sequence[str]) -> Sequence[Lease | None]:
        known = self._check().leases
        return [Lease(known[one]) if one in known else None for one in leases]

    async def keys(self) -> AsyncIterator[Key]:
        for key in sorted(self._check().jobs):
            yield key

    async def flows(self, keys: Sequence[Key]) -> Sequence[Flow | None]:
        return [self._check().flows.get(key) for key in keys]

    async def find_workflows(
        self, tenant: str | None = None, state: str | None = None, page: Page = FIRST_PAGE
    ) -> Sequence[Workflow]:
        every = [flow.workflow for flow in self._check().flows.values()]
        mine = [one for one in every if tenant in (None, one.tenant)]
        return _page([one for one in mine if state in (None, one.state)], key_of, page)

    async def records(
        self, kind: str, tenant: str = "", after: str | None = None, limit: int = 1_000
    ) -> Sequence[Record]:
        records = self._check().records
        found = [records[name][0] for name in sorted(records) if name[:2] == (kind, tenant)]
        return [one for one in found if after is None or one.id > after][: max(limit, 0)]

    async def record(self, keys: Sequence[tuple[str, str, str]]) -> Sequence[Record | None]:
        return [self._check().records.get(key, (None, ""))[0] for key in keys]

    async def limits(self, tenant: str = "") -> Sequence[api.Limited]:
        names = [name for name in sorted(self._check().limits) if name[0] == tenant]
        return [self._limited(name) for name in names]

    async def gates(self, tenant: str = "") -> Sequence[api.GateRow]:
        gates = self._check().gates
        return [gates[name] for name in sorted(gates) if name[0] == tenant]

    async def workers(self, limit: int = 1_000, *, gone: bool = False) -> Sequence[WorkerRow]:
        rows = [row for row in self._check().workers.values() if row.lost is gone]
        if gone:
            rows.sort(key=lambda row: (row.ended_at or 0, row.id), reverse=True)
        else:
            rows.sort(key=lambda row: (-row.alive_until, row.id))
        return rows[: max(limit, 0)]

    async def overdue(self, *, now: int, limit: int = 100) -> Sequence[WorkerRow]:
        rows = sorted(self._check(now).workers.values(), key=lambda row: (row.alive_until, row.id))
        return [row for row in rows if row.alive_until <= now and not row.lost][: max(limit, 0)]

    async def instances(self, keys: Sequence[Key]) -> Sequence[Instance | None]:
        return [self._check().instances.get(key) for key in keys]

    async def find_instances(
        self,
        tenant: str | None = None,
        slot: str | None = None,
        after: Key | None = None,
        limit: int = 1_000,
    ) -> Sequence[Instance]:
        found = [one for key, one in sorted(self._check().instances.items()) if key > (after or ())]
        mine = [one for one in found if tenant in (None, one.tenant)]
        return [one for one in mine if slot in (None, one.slot)][: max(limit, 0)]

    async def history(self, key: Key) -> Sequence[Event]:
        return [fed.event for fed in self._check().events.get(key, ())]

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[Fed]]:
        return [list(self._check().events.get(key, ())) for key in keys]

    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[Fed]:
        return self._fed(after, limit)

    def _fed(self, after: int, limit: int) -> list[Fed]:
        fed = [fed for one in self._check().events.values() for fed in one if fed.pos > after]
        return sorted(fed, key=lambda fed: fed.pos)[: max(limit, 0)]

    async def leaves(self, after: int = 0, limit: int = 10_000) -> Sequence[tuple[int, bytes]]:
        return [leaf for leaf in self._check().leaves if leaf[0] > after][: max(limit, 0)]

    async def blocks(self, after: int = 0, limit: int = 1_000) -> Sequence[Block]:
        return [block for block in self._check().blocks if block.number > after][: max(limit, 0)]

    async def logs(self, key: Key, after: int = 0, limit: int = 1_000) -> Sequence[Logged]:
        own = [one for one in self._check().lines if one.key == key]
        return [one for one in own if one.cursor > after][: max(limit, 0)]

    async def log_tail(self, after: int = 0, limit: int = 1_000) -> Sequence[Logged]:
        return [one for one in self._check().lines if one.pos > after][: max(limit, 0)]

    async def wait(self, timeout_s: float, seen: int | None = None) -> bool:
        return await self._check().bell.wait(timeout_s, seen)

    def now(self) -> int:
        return self._clock()


def _page(found: Iterable[T], key: Callable[[T], Key], page: Page) -> list[T]:
    """Newest first: ids are time-ordered, and the tenant breaks a tie."""
    left = [one for one in found if page.is_after(*key(one))]
    return sorted(left, key=lambda one: key(one)[::-1], reverse=True)[: max(page.limit, 0)]


def _is_chosen(stored: Stored, chosen: Filter) -> bool:
    """All that is asked for; of a job's tags one is enough."""
    job, body = stored.job, stored.body
    want = (chosen.tenant, chosen.queue, chosen.state, chosen.type, chosen.profile, chosen.key)
    got = (job.tenant, job.queue, job.state, body.type, job.profile, body.key)
    pairs = [(chosen.workflow, job.workflow), (chosen.step, job.step), *zip(want, got, strict=True)]
    fits = all(asked in (None, found) for asked, found in pairs)
    return fits and (chosen.tag is None or chosen.tag in body.tags)
