"""Claims: one job after the other, each the best of those that are left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from detent.errors import StoreClosed
from detent.lifecycle import job as j
from detent.stores import api, flows, limits
from detent.stores.api import LimitKind, Stored, Want, key_of
from detent.stores.bounds import need_size, need_storable, need_time
from detent.stores.fences import is_alive
from detent.stores.legal import is_grantable
from detent.stores.memory.tables import Named, Tables
from detent.stores.memory.units import Units

__all__ = ["Claims"]


class Claims(Units):
    """Commits units and grants wishes."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self._clock = clock
        self._is_open = False

    def _check(self, now: int | None = None, rows: Sequence[object] = ()) -> Tables:
        """All there is; if the store is open, the caller's clock is right and rows can be kept."""
        if not self._is_open:
            raise StoreClosed("The store is not open: enter it with `async with` first")
        if now is not None:
            need_time(now, self._clock())
        need_storable(rows)
        return self._all

    async def step(
        self, units: Sequence[api.Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        self._check(now)
        need_size(units, want)
        outcomes = tuple(self._commit(unit, now) for unit in units)
        seen = self._all.bell.rung
        claimed = api.Claimed() if want is None else replace(self._claim(want, now), seen=seen)
        return api.Stepped(outcomes, claimed)

    def _claim(self, want: Want, now: int) -> api.Claimed:
        if not is_grantable(want):
            return api.Claimed()
        if not want.wire and not is_alive(self._all.worker_lease(want.holder), now):
            return api.Claimed(lost=True)
        again = self._claimed_before(want)
        mine = tuple(one for one in again if one.job.tenant == want.tenant)
        return api.Claimed(mine) if again else self._grant(want, now)

    def _claimed_before(self, want: Want) -> list[Stored]:
        """The reply to this very wish was lost: the jobs that hold its leases are the answer.

        Those of another tenant are none of its business, but their leases are given away.
        """
        held = [one for one in self._all.jobs.values() if one.job.holder == want.holder]
        by_lease = {one.job.lease: one for one in held}
        return [by_lease[lease] for lease in want.leases if lease in by_lease]

    def _grant(self, want: Want, now: int) -> api.Claimed:
        left = [one for one in self._all.jobs.values() if self._fits(one, want)]
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
        self._follow(flows.changes_of(moved), [], now, want.command_id)
        is_short = len(granted) < len(want.leases)
        free = [self._free_at(one, now) for one in kept_back if is_short]
        at = min((at for at in free if at is not None), default=None)
        return api.Claimed(tuple(granted), retry_at=at)

    def _fits(self, stored: Stored, want: Want) -> bool:
        job = stored.job
        return (
            job.state is j.JobState.AVAILABLE
            and job.tenant == want.tenant
            and job.queue in want.queues
            and (want.types is None or stored.body.type in want.types)
            and (want.profiles is None or job.profile in want.profiles)
        )

    def _turn(self, stored: Stored, want: Want) -> tuple[int, int, int, int, str]:
        """Whoever was served longest ago, if that counts; then queue, priority, place and id."""
        job = stored.job
        served = self._all.served.get(self._server(stored, want), 0) if want.fair else 0
        queue = 0 if want.fair else want.queues.index(job.queue)
        return served, queue, -job.priority, job.place or 0, job.id

    def _server(self, stored: Stored, want: Want) -> Named:
        name = stored.job.queue if want.fair is api.Fair.QUEUES else stored.body.key or ""
        return want.tenant, str(want.fair), name

    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        """What the lifecycle says to a claim; whatever it refuses is passed over."""
        row, gate = self._all.worker_lease(want.holder), self._all.gate_of(stored)
        asked = j.Dispatch if want.push else j.Claim
        command = asked(lease, want.holder, want.wire, want.lease_us)
        return j.decide(
            stored.job, command, now, j.Context(want.by, want.command_id, lease=row, gate=gate)
        )

    def _take(self, stored: Stored, answer: j.Accepted, want: Want, now: int) -> Stored:
        for name in self._limits_of(stored):
            limit, used, _ = self._use(name)
            self._all.used[name] = limits.spent(limit, used, 1, now)
        if want.fair:
            latest = max(self._all.served.values(), default=0)
            self._all.served[self._server(stored, want)] = max(now, latest + 1)
        taken = replace(stored, job=answer.job, wake_at=j.next_wake(answer.job, now))
        self._all.jobs[key_of(answer.job)] = taken
        self._after_write(stored.job, answer.job, answer.events, now)
        return taken

    def _limits_of(self, stored: Stored) -> list[Named]:
        """The limits that the job stands under."""
        queue = (stored.job.tenant, LimitKind.QUEUE, stored.job.queue)
        key = (stored.job.tenant, LimitKind.KEY, stored.body.key or "")
        return [name for name in (queue, key) if name in self._all.limits and name[2]]

    def _limited(self, name: Named) -> api.Limited:
        """The limit of that name, what has started under it, and how many jobs are in hands."""
        held = [one for one in self._all.jobs.values() if one.job.lease is not None]
        active = sum(name in self._limits_of(one) for one in held)
        return api.Limited(self._all.limits[name], active, self._all.used.get(name, limits.FRESH))

    def _use(self, name: Named) -> tuple[limits.Limit, limits.Used, int]:
        found = self._limited(name)
        return found.row.limit or limits.Limit(), found.used, found.active

    def _full(self, stored: Stored, now: int) -> list[Named]:
        """The limits that keep the job back."""
        return [one for one in self._limits_of(stored) if not limits.room(*self._use(one), now)]

    def _free_at(self, stored: Stored, now: int) -> int | None:
        """When all that keeps it back is over; `None` if time alone does not do it."""
        ends = [limits.free_at(*self._use(one), now) for one in self._full(stored, now)]
        return max((end for end in ends if end is not None), default=None) if all(ends) else None
