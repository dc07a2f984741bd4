"""Lets jobs into bounded queues, one caller at a time: whoever enters moves a mark.

Whoever looks for room reads the mark of a queue first, then counts what is there. The new jobs are
committed together with the next version of the mark. If anybody else has come in meanwhile, in
whatever process, the mark has moved: nothing is committed, and room is looked for anew. Queues
without a bound have no marks.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.machine import Actor
from detent.stores.api import Outcome, Record, StaleRecord, Unit, name_of

OUTRUN: Final = j.JOB.refusal(
    "outrun", None, j.JobEvent.ENQUEUE, Actor.USER, detail="others have come into the queue first"
)
"""What was seen of the queue is not true any more: whoever hears it looks for room again."""


class Entry(msgspec.Struct, frozen=True):
    """The marks as they are to be once the jobs are in."""

    marks: tuple[Record, ...]

    def through(self, unit: Unit) -> Unit:
        """The unit, with the marks that go with its jobs."""
        return replace(unit, puts=(*unit.puts, *self.marks))

    def is_outrun(self, outcome: Outcome) -> bool:
        """Whether it is this that was in the way of the unit."""
        names = {name_of(mark) for mark in self.marks}
        return isinstance(outcome, StaleRecord) and name_of(outcome.record) in names
