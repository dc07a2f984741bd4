"""Declares jobs lost that nobody reported on for as long as they allow.

A job that sets `heartbeat_timeout` has a small record while it runs, which wakes when nothing was
heard of it for that long. Its reservation has nothing to do with that, and may be longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from detent.engine.commands import Beside, Change
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import Failure, Record, Stored, key_of
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.envelope import kept_of

KIND: Final = "ojs-stall"
BY = By(Actor.SYSTEM, "worker watch")


class _Watch(msgspec.Struct, frozen=True):
    """Which job is watched under this lease, for how long it may be silent, and since when."""

    job: str
    stall_us: int
    heard_at: int

    @property
    def over_at(self) -> int:
        """When it has been silent for too long."""
        return self.heard_at + self.stall_us


class Stalls:
    """Watches over jobs that must be heard of."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def watch(self, stored: Stored) -> None:
        """It has begun, if it is one of those."""
        stall_ms = kept_of(stored.body.meta).extras.stall_ms
        if stall_ms is None:
            return
        job = stored.job
        watch = _Watch(job.id, stall_ms * 1_000, job.claimed_at or self._desk.now())
        await self._desk.change(KIND, (job.tenant, job.lease or ""), lambda _: _written(watch))

    async def heard(self, some: Sequence[Stored]) -> None:
        """Somebody who holds them has given a sign of life."""
        now = self._desk.now()
        for stored in some:
            if kept_of(stored.body.meta).extras.stall_ms is not None:
                key = (stored.job.tenant, stored.job.lease or "")
                await self._desk.change(KIND, key, lambda record: _heard(record, now))

    async def answer(self, due: Sequence[Record]) -> None:
        """Lose what has been silent for too long; upkeep asks."""
        engine, now = self._desk.engine, self._desk.now()
        for record in due:
            watch = msgspec.json.decode(record.data or "", type=_Watch)
            over_at = watch.over_at
            if watch.heard_at < engine.upkeep.gap_at:
                # It could not be heard all the time.
                over_at = max(over_at, engine.upkeep.trusting_until)
            if over_at > now:
                await engine.put(replace(record, version=record.version + 1, wake_at=over_at))
            elif await engine.put(replace(record, version=record.version + 1, data=None)):
                await self._stalled(record, watch)

    async def _stalled(self, record: Record, watch: _Watch) -> None:
        [stored] = await self._desk.engine.store.get([(record.tenant, watch.job)])
        if stored is not None and stored.job.lease == record.id:
            why = f"Nothing was heard of it for {watch.stall_us / 1e6:g} s."
            await lose(self._desk, [stored], "stalled", why)


async def lose(desk: Desk, held: Sequence[Stored], code: str, why: str) -> None:
    """Let others have these jobs; of one that was heard of meanwhile nothing is lost."""
    engine, now = desk.engine, desk.now()
    await engine.store.extend([(one.job.lease or "", now) for one in held], now=now)
    await engine.carry_out([_loss(one, code, why, now) for one in held])


def _loss(stored: Stored, code: str, why: str, now: int) -> Change:
    job = stored.job
    command = j.Lose(lease=job.lease, code=code)
    beside = Beside(failure=Failure(job.attempt, now, code, why))
    return Change(key_of(job), command, BY, beside=beside, lease=j.Lease(now))


def _written(watch: _Watch) -> tuple[str, int]:
    return msgspec.json.encode(watch).decode(), watch.over_at


def _heard(record: Record | None, now: int) -> tuple[str, int] | None:
    if record is None or record.data is None:
        return None
    watch = msgspec.json.decode(record.data, type=_Watch)
    return _written(replace(watch, heard_at=max(watch.heard_at, now)))
