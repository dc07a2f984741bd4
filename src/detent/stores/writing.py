"""How a unit that was judged is written: everything that was asked for, then what follows from it.

The order is the same wherever units are written one by one; a store only says how each part is
kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from detent.lifecycle import workflow as w
from detent.lifecycle.job import Job, Lease
from detent.lifecycle.workflow.tally import Standing
from detent.stores import flows
from detent.stores.judging import Head
from detent.stores.shapes import GateRow, Key, LimitRow, Move, New, Record, Unit, key_of


class Writer(ABC):
    """Writes whole units; nothing is refused here any more."""

    def write(self, unit: Unit, now: int) -> None:
        """All of the unit, and all that follows from it."""
        changes, heard = flows.heard_of(unit, self.job)
        if unit.flow is not None:
            self._write_decided(unit.flow.answer)
        for move in unit.moves:
            self.write_move(move, now)
        for new in unit.new:
            self.write_new(new, now)
        for record in unit.puts:
            self.write_record(record, unit.command_id)
        if unit.gates or unit.limits:
            self.switch(unit.gates, unit.limits)
        self.follow(changes, heard, now, unit.command_id)

    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        """What the moves of these jobs ask of their workflows, and then of themselves."""
        for key in sorted(changes):
            before = self.flow(key)
            if before is None:
                raise LookupError(key)
            after = flows.followed(before, changes[key], jobs, now, command_id)
            recalled = [job.step or "" for job, _ in after.recalled]
            self.write_flow(after.answer, after.flow, [*changes[key], *recalled])
            for job, answer in after.recalled:
                self.write_move(Move(job.version, answer.job, answer.events), now)

    def _write_decided(self, answer: w.Accepted) -> None:
        """What a step counts is nobody's to say but the store's."""
        before = self.flow(key_of(answer.flow.workflow))
        tallies = before.tallies if before else {}
        self.write_flow(answer, replace(answer.flow, tallies=tallies), ())

    def in_time(self, before: Head, move: Move) -> int | None:
        """No later than the end of the wire lease that goes on, which the caller may not know."""
        if not before.wire or before.lease is None or before.lease != move.job.lease:
            return move.wake_at
        row = self.wire_lease(before.lease)
        ends = [move.wake_at] if row.lost else [move.wake_at, row.until]
        return min((at for at in ends if at is not None), default=None)

    # --- what is stored ---------------------------------------------------------------------------

    @abstractmethod
    def job(self, key: Key) -> Standing:
        """How a job stands that has passed the fences."""

    @abstractmethod
    def flow(self, key: Key) -> w.Flow | None:
        """A workflow that is stored, or was written a moment ago."""

    @abstractmethod
    def wire_lease(self, lease: str) -> Lease:
        """The row of a wire lease."""

    # --- how it is kept ---------------------------------------------------------------------------

    @abstractmethod
    def write_flow(self, answer: w.Accepted, flow: w.Flow, counted: Iterable[str]) -> None:
        """What was decided, how it leaves the workflow, and the steps whose tallies are others."""

    @abstractmethod
    def write_move(self, move: Move, now: int) -> None:
        """A job that goes on, with all that the move brings."""

    @abstractmethod
    def write_new(self, new: New, now: int) -> None:
        """A job that was not there before."""

    @abstractmethod
    def write_record(self, record: Record, command_id: str) -> None:
        """A small record, or that it is no more."""

    @abstractmethod
    def switch(self, gates: Sequence[GateRow], limits: Sequence[LimitRow]) -> None:
        """The newest word about each gate and limit; whoever waits for jobs looks again."""
