"""The store in memory: units and claims in their own modules, the rest of the protocol here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from detent.errors import BadUrl, StoreClosed
from detent.lifecycle import seal
from detent.lifecycle.event import Event
from detent.lifecycle.job import Lease
from detent.lifecycle.job.table import PARKED
from detent.lifecycle.seal import Block
from detent.lifecycle.worker import Instance
from detent.lifecycle.workflow import Flow, Workflow
from detent.stores import api
from detent.stores.api import Due, Key, Record, Store, Stored, Unit, Want, key_of
from detent.stores.bounds import need_size, need_storable, need_time
from detent.stores.legal import is_storable
from detent.stores.memory.claims import Claims
from detent.stores.memory.pruning import Pruning
from detent.stores.memory.tables import Tables
from detent.stores.memory.units import Units
from detent.stores.memory.workforce import Workforce
from detent.stores.select import FIRST_PAGE, Filter, Page
from detent.stores.workers import need_legal

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


class MemoryStore:
    """Everything in dictionaries; gone with the object, not with its closing."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._is_open = False
        self._all = Tables()
        self._units = Units(self._all)
        self._claims = Claims(self._all, self._units)
        self._pruning = Pruning(self._all)
        self._workforce = Workforce(self._all)

    # --- opening and closing ------------------------------------------------------------------

    async def __aenter__(self) -> Store:
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._all.bell.stop()

    def _tables(self, now: int | None = None) -> Tables:
        """All there is, for a store that is open and a caller whose clock can be believed."""
        if not self._is_open:
            raise StoreClosed("The store is not open: enter it with `async with` first")
        if now is not None:
            need_time(now, self._clock())
        return self._all

    # --- the side that changes something --------------------------------------------------------

    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        self._tables(now)
        need_size(units, want)
        outcomes = tuple(self._units.commit(unit, now) for unit in units)
        if want is None:
            return api.Stepped(outcomes)
        seen = self._all.bell.rung
        return api.Stepped(outcomes, replace(self._claims.claim(want, now), seen=seen))

    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[Due]:
        tables = self._tables(now)
        due = sorted(
            (since, key) for key in tables.jobs if (since := self._due_since(key)) is not None
        )
        ready = [key for since, key in due if since <= now and self._is_free(key, now)]
        return [self._hand_out(key, now + hold_us) for key in ready[: max(limit, 0)]]

    def _due_since(self, key: Key) -> int | None:
        """Its `wake_at`; a job in lost hands or in a dead step has been due since ever."""
        stored = self._all.jobs[key]
        row = self._all.workers.get(stored.job.holder or "")
        in_lost_hands = stored.job.lease is not None and not stored.job.wire
        is_lost = in_lost_hands and row is not None and row.lost
        return 0 if is_lost or self._is_swept(stored) else stored.wake_at

    def _is_swept(self, stored: Stored) -> bool:
        job = stored.job
        where = (job.tenant, job.workflow or "", job.step or "")
        return job.state in PARKED and where in self._all.swept

    def _is_free(self, key: Key, now: int) -> bool:
        """Not handed to another caller just now. Whatever is written to the job frees it."""
        return self._all.handed_out.get(key, now) <= now

    def _hand_out(self, key: Key, until: int) -> Due:
        tables = self._all
        stored = tables.jobs[key] = replace(tables.jobs[key], wake_at=until)
        tables.handed_out[key] = until
        lease, gate = tables.lease_of(stored.job), tables.gate_of(stored)
        row = None if stored.job.wire else tables.workers.get(stored.job.holder or "")
        is_lost = row is not None and row.lost and stored.job.lease is not None
        return Due(stored, lease, gate, self._is_swept(stored), row if is_lost else None)

    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[Record]:
        records = self._tables(now).records
        due = sorted(
            (record.wake_at, name)
            for name, (record, _) in records.items()
            if record.wake_at is not None and record.wake_at <= now
        )
        taken = [name for _, name in due[: max(limit, 0)]]
        for name in taken:
            record, command_id = records[name]
            records[name] = (replace(record, wake_at=now + hold_us), command_id)
        return [records[name][0] for name in taken]

    async def note(self, notes: Sequence[tuple[Key, str, api.Note]], *, now: int) -> Sequence[bool]:
        tables = self._tables(now)
        held = [(key, stored.job.lease) for key, stored in tables.jobs.items()]
        for key, lease, note in notes:
            if (key, lease) in held:
                tables.jobs[key] = replace(tables.jobs[key], note=note)
        return [(key, lease) in held for key, lease, _ in notes]

    async def beat(self, workers: Sequence[api.WorkerRow], *, now: int) -> Sequence[bool]:
        need_storable(workers)
        self._tables(now)
        return self._workforce.beat(workers, now)

    async def declare_lost(self, workers: Sequence[str], *, now: int) -> Sequence[bool]:
        need_storable(workers)
        self._tables(now)
        return self._workforce.declare_lost(workers, now)

    async def bury(self, deaths: Sequence[api.Death], *, now: int) -> Sequence[bool]:
        need_storable(deaths)
        self._tables(now)
        return self._workforce.bury(deaths, now)

    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        self._tables(now)
        return self._workforce.forget(before, limit)

    async def ship(self, lives: Sequence[api.Life], *, now: int) -> Sequence[bool]:
        need_storable(lives)
        need_legal(lives)
        self._tables(now)
        return self._workforce.ship(lives)

    async def extend(self, leases: Sequence[tuple[str, int]], *, now: int) -> Sequence[bool]:
        self._tables(now)
        return [self._extend(lease, until) for lease, until in leases]

    def _extend(self, lease: str, until: int) -> bool:
        """An end that comes earlier than anybody would look makes the job due earlier."""
        tables = self._all
        if lease not in tables.leases:
            return False
        tables.leases[lease] = until
        for key, one in tables.jobs.items():
            is_later = one.wake_at is None or until < one.wake_at
            if is_later and one.job.wire and one.job.lease == lease:
                tables.jobs[key] = replace(one, wake_at=until)
                tables.handed_out.pop(key, None)
        return True

    async def set_gates(self, gates: Sequence[api.GateRow], *, now: int) -> None:
        need_storable(gates)
        self._tables(now).set_gates(gates)

    async def set_limits(self, limits: Sequence[api.LimitRow], *, now: int) -> None:
        need_storable(limits)
        self._tables(now).set_limits(limits)

    async def prune(self, rules: Sequence[api.Retention], *, now: int, limit: int = 1_000) -> int:
        self._tables(now)
        return self._pruning.prune(rules, now, limit)

    async def seal(self, *, limit: int = 10_000) -> Block | None:
        tables = self._tables()
        blocks = tables.blocks
        last = blocks[-1] if blocks else None
        done = last.first_pos + last.count - 1 if last else 0
        chosen = _after(((fed.pos, fed) for fed in tables.feed), done, limit)
        if not chosen:
            return None
        leaves = [seal.leaf(fed.event) for fed in chosen]
        skipped = seal.skip_of(len(blocks) + 1)
        blocks.append(seal.seal(leaves, last, blocks[skipped - 1] if skipped else None))
        tables.leaves += zip((fed.pos for fed in chosen), leaves, strict=True)
        return blocks[-1]

    async def append_logs(self, lines: Sequence[tuple[Key, api.Line]]) -> Sequence[int]:
        tables = self._tables()
        return [tables.log(key, line) for key, line in lines]

    # --- the side that only looks ---------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        return [self._tables().jobs.get(key) for key in keys]

    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        if not is_storable((chosen, page.after)):
            return []
        fitting = [one for one in self._tables().jobs.values() if _is_chosen(one, chosen)]
        return _page(fitting, lambda one: key_of(one.job), page)

    async def flows(self, keys: Sequence[Key]) -> Sequence[Flow | None]:
        return [self._tables().flows.get(key) for key in keys]

    async def find_workflows(
        self, tenant: str | None = None, state: str | None = None, page: Page = FIRST_PAGE
    ) -> Sequence[Workflow]:
        found = [
            flow.workflow
            for flow in self._tables().flows.values()
            if tenant in (None, flow.workflow.tenant) and state in (None, flow.workflow.state)
        ]
        return _page(found, key_of, page)

    async def records(
        self, kind: str, tenant: str = "", after: str | None = None, limit: int = 1_000
    ) -> Sequence[Record]:
        found = [
            record
            for name, (record, _) in sorted(self._tables().records.items())
            if name[:2] == (kind, tenant) and (after is None or record.id > after)
        ]
        return found[: max(limit, 0)]

    async def record(self, keys: Sequence[tuple[str, str, str]]) -> Sequence[Record | None]:
        records = self._tables().records
        return [records[key][0] if key in records else None for key in keys]

    async def limits(self, tenant: str = "") -> Sequence[api.Limited]:
        names = sorted(name for name in self._tables().limits if name[0] == tenant)
        return [self._claims.limited(name) for name in names]

    async def gates(self, tenant: str = "") -> Sequence[api.GateRow]:
        found = sorted(self._tables().gates.items(), key=lambda item: item[0])
        return [
            api.GateRow(api.GateKind(kind), name, gate, of)
            for (of, kind, name), gate in found
            if of == tenant
        ]

    async def overdue(self, *, now: int, limit: int = 100) -> Sequence[api.WorkerRow]:
        rows = sorted(self._tables(now).workers.values(), key=lambda row: (row.alive_until, row.id))
        over = [row for row in rows if row.alive_until <= now and not row.lost]
        return over[: max(limit, 0)]

    async def workers(self, limit: int = 1_000, *, gone: bool = False) -> Sequence[api.WorkerRow]:
        rows = [row for row in self._tables().workers.values() if row.lost is gone]
        if gone:
            ordered = sorted(rows, key=lambda row: (row.ended_at or 0, row.id), reverse=True)
        else:
            ordered = sorted(rows, key=lambda row: (-row.alive_until, row.id))
        return ordered[: max(limit, 0)]

    async def instances(self, keys: Sequence[Key]) -> Sequence[Instance | None]:
        return [self._tables().instances.get(key) for key in keys]

    async def find_instances(
        self,
        tenant: str | None = None,
        slot: str | None = None,
        after: Key | None = None,
        limit: int = 1_000,
    ) -> Sequence[Instance]:
        found = [
            one
            for key, one in sorted(self._tables().instances.items())
            if tenant in (None, one.tenant)
            and slot in (None, one.slot)
            and (after is None or key > after)
        ]
        return found[: max(limit, 0)]

    async def held_by(self, holder: str, limit: int) -> Sequence[Stored]:
        jobs = self._tables().jobs.values()
        held = [one for one in jobs if one.job.lease and one.job.holder == holder]
        return sorted(held, key=lambda one: key_of(one.job))[: max(limit, 0)]

    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        jobs = [stored.job for stored in self._tables().jobs.values()]
        counted = Counter(
            (job.tenant, job.queue, job.state.value) for job in jobs if tenant in (None, job.tenant)
        )
        return [api.Counted(*where, count) for where, count in sorted(counted.items())]

    async def history(self, key: Key) -> Sequence[Event]:
        return list(self._tables().events.get(key, ()))

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[api.Fed]]:
        found: dict[Key, list[api.Fed]] = {key: [] for key in keys}
        for fed in self._tables().feed:
            key = (fed.event.tenant, fed.event.record)
            if key in found:
                found[key].append(fed)
        return [found[key] for key in keys]

    async def leases(self, leases: Sequence[str]) -> Sequence[Lease | None]:
        known = self._tables().leases
        return [Lease(known[one]) if one in known else None for one in leases]

    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[api.Fed]:
        return _after(((fed.pos, fed) for fed in self._tables().feed), after, limit)

    async def leaves(self, after: int = 0, limit: int = 10_000) -> Sequence[tuple[int, bytes]]:
        return _after(((leaf[0], leaf) for leaf in self._tables().leaves), after, limit)

    async def blocks(self, after: int = 0, limit: int = 1_000) -> Sequence[Block]:
        return _after(enumerate(self._tables().blocks, start=1), after, limit)

    async def logs(self, key: Key, after: int = 0, limit: int = 1_000) -> Sequence[api.Logged]:
        lines = [one for one in self._tables().lines if one.key == key]
        return _after(((one.cursor, one) for one in lines), after, limit)

    async def log_tail(self, after: int = 0, limit: int = 1_000) -> Sequence[api.Logged]:
        return _after(((one.pos, one) for one in self._tables().lines), after, limit)

    def now(self) -> int:
        return self._clock()

    async def keys(self) -> AsyncIterator[Key]:
        for key in sorted(self._tables().jobs):
            yield key

    async def wait(self, timeout_s: float, seen: int | None = None) -> bool:
        return await self._tables().bell.wait(timeout_s, seen)


def _after(numbered: Iterable[tuple[int, T]], after: int, limit: int) -> list[T]:
    return [one for number, one in numbered if number > after][: max(limit, 0)]


def _page(found: Iterable[T], key: Callable[[T], Key], page: Page) -> list[T]:
    """Newest first: ids are time-ordered, and the tenant breaks a tie."""
    left = [one for one in found if page.is_after(*key(one))]
    return sorted(left, key=lambda one: key(one)[::-1], reverse=True)[: max(page.limit, 0)]


def _is_chosen(stored: Stored, chosen: Filter) -> bool:
    """All that is asked for; of a job's tags one is enough."""
    job, body = stored.job, stored.body
    pairs = [
        (chosen.tenant, job.tenant),
        (chosen.queue, job.queue),
        (chosen.state, job.state),
        (chosen.type, body.type),
        (chosen.profile, job.profile),
        (chosen.key, body.key),
        (chosen.workflow, job.workflow),
        (chosen.step, job.step),
    ]
    fits = all(want is None or want == got for want, got in pairs)
    return fits and (chosen.tag is None or chosen.tag in body.tags)
