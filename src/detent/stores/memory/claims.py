"""Claims: one job after the other, each the best of those that are left."""

from __future__ import annotations

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.job import JobState
from detent.stores import api, flows, limits
from detent.stores.api import Stored, Want, key_of
from detent.stores.fences import is_alive
from detent.stores.legal import is_grantable
from detent.stores.limits import FRESH, Used
from detent.stores.memory.tables import Named, Tables
from detent.stores.memory.units import Units

__all__ = ["Claims"]


class Claims:
    """Grants wishes."""

    def __init__(self, tables: Tables, units: Units) -> None:
        self._tables = tables
        self._units = units

    def claim(self, want: Want, now: int) -> api.Claimed:
        row = self._tables.worker_lease(want.holder)
        if not is_grantable(want):
            return api.Claimed()
        if not want.wire and not is_alive(row, now):
            return api.Claimed(lost=True)
        again = self._claimed_before(want)
        if again:
            return api.Claimed(tuple(one for one in again if one.job.tenant == want.tenant))
        return self._grant(want, now)

    def _claimed_before(self, want: Want) -> tuple[Stored, ...]:
        """The reply to this very wish was lost: the jobs that hold its leases are the answer.

        Those of another tenant are none of its business, but their leases are given away.
        """
        order = {lease: number for number, lease in enumerate(want.leases)}
        held = [
            (order[stored.job.lease], stored)
            for stored in self._tables.jobs.values()
            if stored.job.lease in order and stored.job.holder == want.holder
        ]
        return tuple(stored for _, stored in sorted(held, key=lambda one: one[0]))

    def _grant(self, want: Want, now: int) -> api.Claimed:
        """One job after the other, each the best of those that are left."""
        left = [one for one in self._tables.jobs.values() if self._fits(one, want)]
        granted: list[Stored] = []
        moved: list[flows.Moved] = []
        kept_back: list[Stored] = []
        while left and len(granted) < len(want.leases):
            stored = min(left, key=lambda one: self._turn(one, want))
            left.remove(stored)
            answer = self._answer(stored, want.leases[len(granted)], want, now)
            if not isinstance(answer, j.Accepted):
                continue
            if self._full(stored, now):
                kept_back.append(stored)
                continue
            granted.append(self._take(stored, answer, want, now))
            moved.append((stored.job, answer.job))
        self._units.follow(flows.changes_of(moved), [], now, want.command_id)
        is_short = len(granted) < len(want.leases)
        free = [self._free_at(one, now) for one in kept_back if is_short]
        at = min((at for at in free if at is not None), default=None)
        return api.Claimed(tuple(granted), retry_at=at)

    def _fits(self, stored: Stored, want: Want) -> bool:
        job = stored.job
        return (
            job.state is JobState.AVAILABLE
            and job.tenant == want.tenant
            and job.queue in want.queues
            and (want.types is None or stored.body.type in want.types)
            and (want.profiles is None or job.profile in want.profiles)
        )

    def _turn(self, stored: Stored, want: Want) -> tuple[int, int, int, int, str]:
        """Whoever was served longest ago, if that counts; then queue, priority, place and id."""
        job, served = stored.job, 0
        queue = 0 if want.fair else want.queues.index(job.queue)
        if want.fair:
            served = self._tables.served.get(self._server(stored, want), 0)
        return served, queue, -job.priority, job.place or 0, job.id

    def _server(self, stored: Stored, want: Want) -> Named:
        name = stored.job.queue if want.fair is api.Fair.QUEUES else stored.body.key or ""
        return want.tenant, str(want.fair), name

    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        """What the lifecycle says to a claim; whatever it refuses is passed over."""
        row, gate = self._tables.worker_lease(want.holder), self._tables.gate_of(stored)
        ctx = j.Context(want.by, want.command_id, lease=row, gate=gate)
        command = j.Dispatch if want.push else j.Claim
        asked = command(lease, want.holder, want.wire, want.lease_us)
        return j.decide(stored.job, asked, now, ctx)

    def _take(self, stored: Stored, answer: j.Accepted, want: Want, now: int) -> Stored:
        for one in self._limits_of(stored):
            limit, used, _ = self._use(one)
            self._tables.used[one] = limits.spent(limit, used, 1, now)
        if want.fair:
            latest = max(self._tables.served.values(), default=0)
            self._tables.served[self._server(stored, want)] = max(now, latest + 1)
        taken = replace(stored, job=answer.job, wake_at=j.next_wake(answer.job, now))
        self._tables.jobs[key_of(answer.job)] = taken
        self._units.after_write(stored.job, answer.job, answer.events, now)
        return taken

    def _limits_of(self, stored: Stored) -> list[Named]:
        """The limits that the job stands under."""
        queue = (stored.job.tenant, api.LimitKind.QUEUE, stored.job.queue)
        key = (stored.job.tenant, api.LimitKind.KEY, stored.body.key or "")
        return [one for one in (queue, key) if one in self._tables.limits and one[2]]

    def limited(self, name: Named) -> api.Limited:
        """The limit of that name and how much of it is used."""
        jobs = self._tables.jobs.values()
        held = [one for one in jobs if one.job.lease is not None and name in self._limits_of(one)]
        return api.Limited(self._tables.limits[name], len(held), self._tables.used.get(name, FRESH))

    def _use(self, name: Named) -> tuple[limits.Limit, Used, int]:
        found = self.limited(name)
        return found.row.limit or limits.Limit(), found.used, found.active

    def _full(self, stored: Stored, now: int) -> list[Named]:
        """The limits that keep the job back."""
        return [one for one in self._limits_of(stored) if not limits.room(*self._use(one), now)]

    def _free_at(self, stored: Stored, now: int) -> int | None:
        """When all that keeps it back is over; `None` if time alone does not do it."""
        ends = [limits.free_at(*self._use(one), now) for one in self._full(stored, now)]
        return max((end for end in ends if end is not None), default=None) if all(ends) else None
