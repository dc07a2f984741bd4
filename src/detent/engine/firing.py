"""What firing a schedule does: new jobs, the end of old ones, its next state. Pure.

All of it is one unit. The id of a job follows from its schedule and its slot, and the record is
taken only if nobody has moved it: a slot fires once, however many servers see that it is due.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from detent.engine.asks import Ask, born
from detent.engine.identity import Identity, derived_id
from detent.engine.schedule import Overlap, Schedule, due_slots, written
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import Cause
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import Move, New, Record, Unit

_LATEST_MAX = 100


class Firing:
    """The units of one schedule, at one moment."""

    def __init__(self, record: Record, schedule: Schedule, now: int, identity: Identity) -> None:
        self._record = record
        self._schedule = schedule
        self._now = now
        self._identity = identity
        self._command_id = identity.id()

    def due(self, before: Sequence[Job], known: Collection[str]) -> Unit:
        """What is due, beside the live jobs of the slot before.

        `known` are ids of jobs that exist already, or that something else is in the way of.
        """
        slots = due_slots(self._schedule, self._now)
        is_skipped = bool(before) and self._schedule.plan.overlap is Overlap.SKIP
        new = [] if is_skipped else [one for slot in slots if (one := self._of(slot, known))]
        after = self._answered(new, skipped=len(slots) if is_skipped else 0)
        moves = self._ending(before) if new else ()
        return Unit(
            self._command_id, moves, tuple(new), puts=(written(after, self._record.version + 1),)
        )

    def by_hand(self, by: By, reason: str | None) -> Unit | Refusal:
        """One job more, beside whatever runs; the slots stay as they are."""
        ask, job_id = ask_for(self._schedule, None, self._now), self._identity.id()
        new = born(ask, job_id, self._now, self._context(by, reason))
        if isinstance(new, Refusal):
            return new
        counted = replace(
            self._schedule,
            fired=self._schedule.fired + 1,
            fired_at=self._now,
            latest=(*self._schedule.latest, job_id)[-_LATEST_MAX:],
        )
        after = counted.changed("fired", self._now, by, reason)
        return Unit(self._command_id, new=(new,), puts=(written(after, self._record.version + 1),))

    def _of(self, slot: int, known: Collection[str]) -> New | None:
        """The job of a slot; `None` if it is there already."""
        tenant, name = self._schedule.plan.key
        job_id = derived_id(slot, 0, "schedule", tenant, name)
        if job_id in known:
            return None
        ask = ask_for(self._schedule, slot, self._now)
        new = born(ask, job_id, self._now, self._context(self._by, None))
        # The template was tried when the schedule was made; a refusal now is about this moment.
        return None if isinstance(new, Refusal) else new

    def _ending(self, before: Sequence[Job]) -> tuple[Move, ...]:
        """The end of what still lives of the slot before, or the wish for it where it runs."""
        if self._schedule.plan.overlap is not Overlap.CANCEL_PREVIOUS:
            return ()
        ctx = self._context(self._by, "the next slot of its schedule has come")
        answers = [(job, j.decide(job, j.Cancel(Cause.REPLACED), self._now, ctx)) for job in before]
        return tuple(
            Move(job.version, answer.job, answer.events, j.next_wake(answer.job, self._now))
            for job, answer in answers
            if isinstance(answer, j.Accepted)
        )

    def _answered(self, new: Sequence[New], skipped: int) -> Schedule:
        """The schedule, waiting for its next slot."""
        slots = self._schedule.timetable.newest(self._schedule.next_at or 0, self._now, 1)
        after = replace(
            self._schedule,
            slot_at=slots[-1] if slots else self._schedule.slot_at,
            skipped=self._schedule.skipped + skipped,
        ).armed(self._now)
        if not new:
            return after
        ids = tuple(one.job.id for one in new)
        return replace(after, fired=after.fired + len(ids), fired_at=self._now, latest=ids)

    @property
    def _by(self) -> By:
        return By(Actor.SYSTEM, f"schedule {self._schedule.plan.name}")

    def _context(self, by: By, reason: str | None) -> j.Context:
        return j.Context(by, self._command_id, place=self._identity.place(), reason=reason)


def ask_for(schedule: Schedule, slot: int | None, now: int) -> Ask:
    """The job of a slot, or one by hand: it says in its metadata where it comes from."""
    plan = schedule.plan
    meta: dict[str, Any] = msgspec.json.decode(plan.job.meta, type=dict[str, msgspec.Raw])
    at = datetime.fromtimestamp((now if slot is None else slot) / 1_000_000, UTC)
    meta["schedule"] = {
        "name": plan.name,
        "at": at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "by_hand": slot is None,
    }
    return replace(plan.job, meta=msgspec.json.encode(meta).decode())
