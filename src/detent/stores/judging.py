"""Judges units and claims against what is stored, before anything is written.

Every store judges by these rules; it only has to know what is stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from detent.lifecycle.job import Job, Lease
from detent.lifecycle.workflow import Flow
from detent.stores import flows
from detent.stores.fences import is_alive, is_over
from detent.stores.legal import fault, is_grantable
from detent.stores.shapes import (
    Claimed,
    Key,
    LeaseAlive,
    Move,
    Named,
    New,
    Outcome,
    Own,
    Record,
    Rejected,
    Stale,
    StaleFlow,
    StaleRecord,
    Taken,
    Unique,
    Unit,
    Want,
    key_of,
    name_of,
)
from detent.stores.siblings import Siblings


class Head(Protocol):
    """What the fences ask of a stored job."""

    @property
    def version(self) -> int:
        """Which every move must know."""

    @property
    def lease(self) -> str | None:
        """The lease it is held under; a move that relies on one must name it."""

    @property
    def wire(self) -> int:
        """Whether the lease has a row of its own, and not its holder's."""

    @property
    def holder(self) -> str | None:
        """The worker whose row stands behind the lease, if it is no wire lease."""


class Judge(ABC):
    """Judges a unit against what is stored, before any of it is written."""

    def refused(self, unit: Unit, now: int) -> Outcome | None:
        """The first thing that speaks against it, or `None`. One's own success is seen first."""
        for move in unit.moves:
            fenced = self._fenced(unit, move) or self._fenced_by_row(move, now)
            if fenced is not None:
                return fenced
        refused = self._flow_fenced(unit) or self._puts_fenced(unit)
        return refused or self._any_taken(unit, now) or self._illegal(unit)

    # --- the fences -------------------------------------------------------------------------------

    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        """The version, and the lease where one is named."""
        key = (move.job.tenant, move.job.id)
        head = self.head(key)
        if head is None:
            return Stale(key, None)
        if head.version == move.version and move.lease in (None, head.lease):
            return None
        return Own() if self.is_own(unit, key) else Stale(key, self.job(key))

    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        """The third fence: renewal moves no version, so the row itself is looked at again."""
        if not move.lost and move.taken_by is None:
            return None
        key = (move.job.tenant, move.job.id)
        head = self.head(key)
        row = self.row_behind(head) if move.lost and head else None
        if head and row and not is_over(row, wire=bool(head.wire), now=now):
            return LeaseAlive(key, row)
        taker = None if move.taken_by is None else self.worker_lease(move.taken_by)
        return None if taker is None or is_alive(taker, now) else LeaseAlive(key, taker)

    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        """Every version of the workflow and its steps that the decision was made on."""
        if unit.flow is None:
            return None
        key = key_of(unit.flow.answer.flow.workflow)
        stored = self.flow(key)
        if not flows.is_stale(unit.flow, stored):
            return None
        keys = [key, *((key[0], step) for step in stored.steps)] if stored else []
        is_own = any(self.is_own(unit, one) for one in keys) or self._is_born(unit)
        return Own() if is_own else StaleFlow(key, stored)

    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        """The version of every small record, each of which tells by whom it was written."""
        for record in unit.puts:
            stored, command_id = self.record_of(name_of(record))
            if record.version == (stored.version if stored else 0) + 1:
                continue
            is_own = stored and (stored.version, command_id) == (record.version, unit.command_id)
            return Own() if is_own or self._is_born(unit) else StaleRecord(record, stored)
        return None

    def _is_born(self, unit: Unit) -> bool:
        """A job that came with the unit tells that it was committed, whatever went on since."""
        return any(self.is_own(unit, key_of(new.job)) for new in unit.new)

    def row_behind(self, head: Head) -> Lease | None:
        """The row behind a job's lease, if it has one."""
        if head.lease is None:
            return None
        return self.wire_lease(head.lease) if head.wire else self.worker_lease(head.holder or "")

    # --- what must be the only one of its kind ----------------------------------------------------

    def _any_taken(self, unit: Unit, now: int) -> Outcome | None:
        siblings = Siblings() if len(unit.new) > 1 else None
        for new in unit.new:
            taken = self._taken(unit, new, now)
            if siblings is not None:
                taken = siblings.judge(new, taken, now)
            if taken is not None:
                return taken
        return None

    def _taken(self, unit: Unit, new: New, now: int) -> Outcome | None:
        """Its id, its idempotency key or its fingerprint: the first that is in use."""
        key = (new.job.tenant, new.job.id)
        if self.head(key) is not None:
            return Own() if self.is_own(unit, key) else Taken("id", self.job(key))
        asked = new.idempotency
        promised = None if asked is None else self.promised((key[0], asked.key), now)
        if asked is not None and promised is not None:
            digest, job = promised
            return Taken("idempotency", job, differs=digest != asked.digest)
        oldest = None if new.unique is None else self.oldest(unit, new, new.unique)
        return None if oldest is None else Taken("unique", oldest)

    # --- what no store may hold -------------------------------------------------------------------

    def _illegal(self, unit: Unit) -> Rejected | None:
        """What a check or a trigger refuses in a database: the fault is the caller's code."""
        why = fault(unit, self.has_ended, self.flow)
        return None if why is None else Rejected(why)

    def has_ended(self, key: Key) -> bool:
        return self.job(key).ended_at is not None

    # --- what is stored ---------------------------------------------------------------------------

    @abstractmethod
    def head(self, key: Key) -> Head | None:
        """What the fences ask of a job; `None` if there is none."""

    @abstractmethod
    def job(self, key: Key) -> Job:
        """The whole record of a job that is there."""

    @abstractmethod
    def is_own(self, unit: Unit, key: Key) -> bool:
        """Whether the command of this unit stands in the history of that record."""

    @abstractmethod
    def wire_lease(self, lease: str) -> Lease:
        """The row of a wire lease."""

    @abstractmethod
    def worker_lease(self, worker: str) -> Lease:
        """The row of a worker instance."""

    @abstractmethod
    def flow(self, key: Key) -> Flow | None:
        """A workflow with its steps and tallies."""

    @abstractmethod
    def record_of(self, name: Named) -> tuple[Record | None, str]:
        """A small record, and the command that wrote it."""

    @abstractmethod
    def promised(self, name: Key, now: int) -> tuple[str, Job] | None:
        """What an idempotency key that is still alive was used for: the digest and the job."""

    @abstractmethod
    def oldest(self, unit: Unit, new: New, unique: Unique) -> Job | None:
        """The oldest job of this fingerprint that counts after the moves of this very unit."""


def denied(want: Want, row_of: Callable[[str], Lease], now: int) -> Claimed | None:
    """The answer to a wish that is granted nothing, whatever there is.

    `row_of` tells the row of a worker instance, and is only asked about names that can be kept.
    """
    if not is_grantable(want):
        return Claimed()
    return None if want.wire or is_alive(row_of(want.holder), now) else Claimed(lost=True)
