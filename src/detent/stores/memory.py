"""The reference model: the whole protocol in dictionaries, every rule in sight.

Nothing here is fast and nothing is clever. Other stores are right when they do what this one does.
No method awaits anything while it changes something, so every call is one moment.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from detent.errors import BadUrl, StoreClosed
from detent.lifecycle import job as j
from detent.lifecycle import seal
from detent.lifecycle.event import Event
from detent.lifecycle.job import Gate, Job, JobState, Lease
from detent.lifecycle.seal import Block
from detent.stores import api
from detent.stores.api import Due, Key, Move, New, Outcome, Store, Stored, Unit, Want, key_of
from detent.stores.clock import need_time
from detent.stores.legal import fault
from detent.stores.select import FIRST_PAGE, Filter, Page

__all__ = ["MemoryStore", "connect"]

T = TypeVar("T")
_MISSING = Lease(0, lost=True)


def connect(url: str, clock: Callable[[], int] | None = None) -> Store:
    """A new, empty store; its address is `memory:` and nothing more."""
    if url != "memory:":
        raise BadUrl(f"A store in memory has no path: write memory: instead of {url}", url=url)
    return MemoryStore(clock or (lambda: time.time_ns() // 1_000))


class MemoryStore:
    """Everything in dictionaries; gone with the object, not with its closing."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._is_open = False
        self._jobs: dict[Key, Stored] = {}
        self._events: defaultdict[Key, list[api.Fed]] = defaultdict(list)
        self._feed: list[api.Fed] = []
        self._blocks: list[Block] = []
        self._workers: dict[str, api.WorkerRow] = {}
        self._leases: dict[str, int] = {}
        self._gates: dict[tuple[str, api.GateKind, str], Gate] = {}
        self._fingerprints: defaultdict[tuple[str, str], list[Key]] = defaultdict(list)
        self._promises: dict[Key, tuple[api.Idempotency, Key]] = {}
        self._handed_out: dict[Key, int] = {}
        self._logs: defaultdict[Key, list[api.Logged]] = defaultdict(list)
        self._tail: list[api.Logged] = []
        self._waiting: set[asyncio.Future[bool]] = set()
        self._has_news = False

    # --- opening and closing ------------------------------------------------------------------

    async def __aenter__(self) -> Store:
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._wake(found=False)

    def _need_open(self) -> None:
        if not self._is_open:
            raise StoreClosed("The store is not open: enter it with `async with` first")

    def _need_time(self, now: int) -> None:
        self._need_open()
        need_time(now, self._clock())

    # --- step: units --------------------------------------------------------------------------

    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        self._need_time(now)
        outcomes = tuple(self._commit(unit, now) for unit in units)
        return api.Stepped(outcomes, self._claim(want, now) if want is not None else api.Claimed())

    def _commit(self, unit: Unit, now: int) -> Outcome:
        """All of the unit, or none: everything is asked before anything is written."""
        refused = self._refused(unit, now)
        if refused is not None:
            return refused
        for move in unit.moves:
            self._write_move(move, now)
        for new in unit.new:
            self._write_new(new, now)
        return api.Committed()

    def _refused(self, unit: Unit, now: int) -> Outcome | None:
        for move in unit.moves:
            fenced = self._fenced(unit, move) or self._fenced_by_row(move, now)
            if fenced is not None:
                return fenced
        return self._taken(unit, now) or self._illegal(unit)

    def _illegal(self, unit: Unit) -> api.Rejected | None:
        """What a check or a trigger refuses in a database: the fault is the caller's code."""
        why = fault(unit, lambda key: self._jobs[key].job.ended_at is not None)
        return None if why is None else api.Rejected(why)

    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        """The version, and the lease where one is named. One's own success is seen first."""
        key = key_of(move.job)
        stored = self._jobs.get(key)
        if stored is None:
            return api.Stale(key, None)
        if move.version == stored.job.version and move.lease in (None, stored.job.lease):
            return None
        return api.Own() if self._is_own(unit, key) else api.Stale(key, stored.job)

    def _is_own(self, unit: Unit, key: Key) -> bool:
        return any(fed.event.command_id == unit.command_id for fed in self._events[key])

    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        """The third fence: renewal moves no version, so the row itself is looked at again."""
        key = key_of(move.job)
        if move.lost:
            held_by = self._lease_of(self._jobs[key].job)
            if held_by is not None and not self._is_over(self._jobs[key].job, held_by, now):
                return api.LeaseAlive(key, held_by)
        if move.taken_by is not None:
            row = self._worker_lease(move.taken_by)
            if not self._is_alive(row, now):
                return api.LeaseAlive(key, row)
        return None

    def _is_over(self, job: Job, row: Lease, now: int) -> bool:
        """A wire lease ends by itself; a worker is lost only once it has been marked so."""
        return row.lost or (job.wire and row.until <= now)

    def _is_alive(self, row: Lease, now: int) -> bool:
        return not row.lost and now < row.until

    def _lease_of(self, job: Job) -> Lease | None:
        """The row behind a job's lease; one that is missing counts as lost."""
        if job.lease is None:
            return None
        if job.wire:
            return Lease(self._leases[job.lease]) if job.lease in self._leases else _MISSING
        return self._worker_lease(job.holder or "")

    def _worker_lease(self, worker: str) -> Lease:
        row = self._workers.get(worker)
        return _MISSING if row is None else Lease(row.alive_until, row.lost)

    # --- step: what must be the only one of its kind --------------------------------------------

    def _taken(self, unit: Unit, now: int) -> Outcome | None:
        moved = {key_of(move.job): move.job for move in unit.moves}
        for new in unit.new:
            taken = self._id_taken(unit, new) or self._promised(new, now)
            taken = taken or self._not_unique(new, moved)
            if taken is not None:
                return taken
        return None

    def _id_taken(self, unit: Unit, new: New) -> Outcome | None:
        key = key_of(new.job)
        if key not in self._jobs:
            return None
        return api.Own() if self._is_own(unit, key) else api.Taken("id", self._jobs[key].job)

    def _promised(self, new: New, now: int) -> api.Taken | None:
        """An idempotency key that is still alive answers the job it was used for."""
        asked = new.idempotency
        if asked is None or (new.job.tenant, asked.key) not in self._promises:
            return None
        earlier, key = self._promises[new.job.tenant, asked.key]
        if earlier.expires_at <= now:
            return None
        differs = earlier.digest != asked.digest
        return api.Taken("idempotency", self._jobs[key].job, differs=differs)

    def _not_unique(self, new: New, moved: dict[Key, Job]) -> api.Taken | None:
        unique = new.unique
        if unique is None:
            return None
        keys = self._fingerprints[new.job.tenant, unique.fingerprint]
        there = [k for k in keys if self._counts(moved.get(k, self._jobs[k].job), unique)]
        jobs = [self._jobs[key].job for key in there]
        return api.Taken("unique", min(jobs, key=lambda one: one.created_at)) if jobs else None

    def _counts(self, job: Job, unique: api.Unique) -> bool:
        in_time = unique.since is None or job.created_at >= unique.since
        return in_time and job.state in unique.states

    # --- step: writing ------------------------------------------------------------------------

    def _write_move(self, move: Move, now: int) -> None:
        key = key_of(move.job)
        before = self._jobs[key]
        self._jobs[key] = Stored(
            job=move.job if move.events else before.job,
            body=before.body,
            wake_at=move.wake_at,
            result=before.result if move.result is None else move.result,
            failures=(*before.failures, move.failure) if move.failure else before.failures,
        )
        self._after_write(before.job, self._jobs[key].job, move.events, now)
        for line in move.lines:
            self._log(key, line)

    def _write_new(self, new: New, now: int) -> None:
        key = key_of(new.job)
        self._jobs[key] = Stored(new.job, new.body, new.wake_at)
        if new.unique is not None:
            self._fingerprints[new.job.tenant, new.unique.fingerprint].append(key)
        if new.idempotency is not None:
            self._promises[new.job.tenant, new.idempotency.key] = (new.idempotency, key)
        self._after_write(None, new.job, new.events, now)

    def _after_write(self, before: Job | None, job: Job, events: Sequence[Event], now: int) -> None:
        for event in events:
            self._record(event)
        self._handed_out.pop(key_of(job), None)
        self._keep_lease_row(before, job, now)
        if events and job.state is JobState.AVAILABLE:
            self._wake(found=True)

    def _record(self, event: Event) -> None:
        """The history and the feed are one: whatever is in one is in the other."""
        self._feed.append(api.Fed(len(self._feed) + 1, event))
        self._events[event.tenant, event.record].append(self._feed[-1])

    def _keep_lease_row(self, before: Job | None, job: Job, now: int) -> None:
        """A wire lease has a row of its own, from the moment it begins until it ends."""
        old = None if before is None else before.lease
        if old == job.lease:
            return
        if old is not None:
            self._leases.pop(old, None)
        if job.lease is not None and job.wire:
            self._leases[job.lease] = now + (job.lease_us or 0)

    # --- step: claims -------------------------------------------------------------------------

    def _claim(self, want: Want, now: int) -> api.Claimed:
        self._has_news = False
        row = self._worker_lease(want.holder)
        if not want.wire and not self._is_alive(row, now):
            return api.Claimed(lost=True)
        again = self._claimed_before(want)
        if again:
            return api.Claimed(again)
        leases, jobs = list(want.leases), []
        for stored in self._candidates(want):
            taken = self._take(stored, leases[0], want, now) if leases else None
            if taken is not None:
                jobs.append(taken)
                del leases[0]
        return api.Claimed(tuple(jobs))

    def _claimed_before(self, want: Want) -> tuple[Stored, ...]:
        """The reply to this very wish was lost: the jobs that hold its leases are the answer."""
        order = {lease: number for number, lease in enumerate(want.leases)}
        held = [
            (order[stored.job.lease], stored)
            for stored in self._jobs.values()
            if stored.job.lease in order
            and (stored.job.tenant, stored.job.holder) == (want.tenant, want.holder)
        ]
        return tuple(stored for _, stored in sorted(held, key=lambda one: one[0]))

    def _candidates(self, want: Want) -> list[Stored]:
        fitting = [one for one in self._jobs.values() if self._fits(one, want)]
        return sorted(fitting, key=lambda one: self._turn(one.job, want))

    def _fits(self, stored: Stored, want: Want) -> bool:
        job = stored.job
        return (
            job.state is JobState.AVAILABLE
            and job.tenant == want.tenant
            and job.queue in want.queues
            and (want.types is None or stored.body.type in want.types)
            and (want.profiles is None or job.profile in want.profiles)
        )

    def _turn(self, job: Job, want: Want) -> tuple[int, int, int, str]:
        """Queues from left to right, then priority, then place; ids only break a tie."""
        return want.queues.index(job.queue), -job.priority, job.place or 0, job.id

    def _take(self, stored: Stored, lease: str, want: Want, now: int) -> Stored | None:
        """What the lifecycle says to a claim; whatever it refuses is passed over."""
        ctx = j.Context(
            want.by,
            want.command_id,
            lease=self._worker_lease(want.holder),
            gate=self._gate_of(stored),
        )
        command = j.Claim(lease, want.holder, want.wire, want.lease_us)
        answer = j.decide(stored.job, command, now, ctx)
        if not isinstance(answer, j.Accepted):
            return None
        key = key_of(answer.job)
        self._jobs[key] = replace(stored, job=answer.job, wake_at=j.next_wake(answer.job, now))
        self._after_write(stored.job, answer.job, answer.events, now)
        return self._jobs[key]

    def _gate_of(self, stored: Stored) -> Gate:
        """Its queue's and its type's gate as one."""
        job = stored.job
        queue = self._gates.get((job.tenant, api.GateKind.QUEUE, job.queue), j.OPEN)
        kind = self._gates.get((job.tenant, api.GateKind.TYPE, stored.body.type), j.OPEN)
        opened = [at for at in (queue.opened_at, kind.opened_at) if at is not None]
        closed = queue.closed or kind.closed
        return Gate(closed, max(opened, default=None), queue.queue_deleted)

    # --- time, workers, leases, gates -----------------------------------------------------------

    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[Due]:
        self._need_time(now)
        due = sorted(
            (since, key) for key in self._jobs if (since := self._due_since(key)) is not None
        )
        ready = [key for since, key in due if since <= now and self._is_free(key, now)]
        return [self._hand_out(key, now + hold_us) for key in ready[: max(limit, 0)]]

    def _due_since(self, key: Key) -> int | None:
        """Its `wake_at`; a job whose worker is marked lost has been due since ever."""
        stored = self._jobs[key]
        row = self._workers.get(stored.job.holder or "")
        in_lost_hands = stored.job.lease is not None and not stored.job.wire
        return 0 if in_lost_hands and row is not None and row.lost else stored.wake_at

    def _is_free(self, key: Key, now: int) -> bool:
        """Not handed to another caller just now. Whatever is written to the job frees it."""
        return self._handed_out.get(key, now) <= now

    def _hand_out(self, key: Key, until: int) -> Due:
        stored = self._jobs[key] = replace(self._jobs[key], wake_at=until)
        self._handed_out[key] = until
        return Due(stored, self._lease_of(stored.job), self._gate_of(stored))

    async def beat(self, workers: Sequence[api.WorkerRow], *, now: int) -> Sequence[bool]:
        self._need_time(now)
        return [self._renew(row) for row in workers]

    def _renew(self, row: api.WorkerRow) -> bool:
        known = self._workers.get(row.id)
        if known is not None and known.lost:
            return False
        self._workers[row.id] = api.WorkerRow(row.id, row.alive_until)
        return True

    async def declare_lost(self, workers: Sequence[str], *, now: int) -> Sequence[bool]:
        self._need_time(now)
        return [self._mark_lost(worker, now) for worker in workers]

    def _mark_lost(self, worker: str, now: int) -> bool:
        row = self._workers.get(worker)
        if row is None or row.lost:
            return True
        if row.alive_until > now:
            return False
        self._workers[worker] = replace(row, lost=True)
        return True

    async def extend(self, leases: Sequence[tuple[str, int]], *, now: int) -> Sequence[bool]:
        self._need_time(now)
        self._leases |= {lease: until for lease, until in leases if lease in self._leases}
        return [lease in self._leases for lease, _ in leases]

    async def set_gates(self, gates: Sequence[api.GateRow], *, now: int) -> None:
        self._need_time(now)
        for row in gates:
            self._gates[row.tenant, row.kind, row.name] = row.gate
        self._wake(found=True)

    # --- the feed, its seals, the logs ----------------------------------------------------------

    async def seal(self, *, limit: int = 10_000) -> Block | None:
        self._need_open()
        last = self._blocks[-1] if self._blocks else None
        done = last.first_pos + last.count - 1 if last else 0
        leaves = [seal.leaf(fed.event) for fed in _following(self._feed, done, limit)]
        if not leaves:
            return None
        skipped = seal.skip_of(len(self._blocks) + 1)
        skip = self._blocks[skipped - 1] if skipped else None
        self._blocks.append(seal.seal(leaves, last, skip))
        return self._blocks[-1]

    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[api.Fed]:
        self._need_open()
        return _following(self._feed, after, limit)

    async def blocks(self, after: int = 0, limit: int = 1_000) -> Sequence[Block]:
        self._need_open()
        return _following(self._blocks, after, limit)

    async def append_logs(self, lines: Sequence[tuple[Key, api.Line]]) -> Sequence[int]:
        self._need_open()
        return [self._log(key, line) if key in self._jobs else 0 for key, line in lines]

    def _log(self, key: Key, line: api.Line) -> int:
        logged = api.Logged(key, len(self._logs[key]) + 1, line, len(self._tail) + 1)
        self._logs[key].append(logged)
        self._tail.append(logged)
        return logged.cursor

    async def logs(self, key: Key, after: int = 0, limit: int = 1_000) -> Sequence[api.Logged]:
        self._need_open()
        return _following(self._logs.get(key, []), after, limit)

    async def log_tail(self, after: int = 0, limit: int = 1_000) -> Sequence[api.Logged]:
        self._need_open()
        return _following(self._tail, after, limit)

    # --- reading ------------------------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        self._need_open()
        return [self._jobs.get(key) for key in keys]

    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        self._need_open()
        found = [
            stored
            for stored in self._jobs.values()
            if _is_chosen(stored, chosen) and (page.after is None or stored.job.id < page.after)
        ]
        found.sort(key=lambda stored: (stored.job.id, stored.job.tenant), reverse=True)
        return found[: max(page.limit, 0)]

    async def held_by(self, holder: str, limit: int) -> Sequence[Stored]:
        self._need_open()
        held = [one for one in self._jobs.values() if one.job.lease and one.job.holder == holder]
        return sorted(held, key=lambda one: key_of(one.job))[: max(limit, 0)]

    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        self._need_open()
        jobs = [stored.job for stored in self._jobs.values()]
        counted = Counter(
            (job.tenant, job.queue, job.state.value) for job in jobs if tenant in (None, job.tenant)
        )
        return [api.Counted(*where, count) for where, count in sorted(counted.items())]

    async def history(self, key: Key) -> Sequence[Event]:
        self._need_open()
        return [fed.event for fed in self._events.get(key, ())]

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[api.Fed]]:
        self._need_open()
        return [list(self._events.get(key, ())) for key in keys]

    async def leases(self, leases: Sequence[str]) -> Sequence[Lease | None]:
        self._need_open()
        return [Lease(self._leases[one]) if one in self._leases else None for one in leases]

    async def keys(self) -> AsyncIterator[Key]:
        self._need_open()
        for key in sorted(self._jobs):
            yield key

    async def wait(self, timeout_s: float) -> bool:
        self._need_open()
        if self._has_news:  # It came after the last claim had looked, and before this wait.
            return True
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.add(woken)
        try:
            return await asyncio.wait_for(woken, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(woken)

    def _wake(self, *, found: bool) -> None:
        self._has_news = found
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(found)
        self._waiting.clear()


def _following(numbered: list[T], after: int, limit: int) -> list[T]:
    """What comes after number `after`; the numbers are 1, 2, 3 and so on."""
    return numbered[max(after, 0) :][: max(limit, 0)]


def _is_chosen(stored: Stored, chosen: Filter) -> bool:
    job = stored.job
    has = (job.tenant, job.queue, job.state, stored.body.type, job.profile)
    asked = (chosen.tenant, chosen.queue, chosen.state, chosen.type, chosen.profile)
    return all(want is None or want == got for want, got in zip(asked, has, strict=True))
