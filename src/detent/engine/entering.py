"""Lets jobs into bounded queues, one caller at a time: whoever enters moves a mark.

Whoever looks for room reads the mark of a queue first, then counts what is there. The new jobs are
committed together with the next version of the mark, and with the end of those that make room for
them. If anybody else has come in meanwhile, in whatever process, the mark has moved: nothing is
committed, and room is looked for anew. Queues without a bound have no marks.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import Move, Outcome, Record, Stale, StaleRecord, Unit, key_of, name_of

OUTRUN: Final = j.JOB.refusal(
    "outrun", None, j.JobEvent.ENQUEUE, Actor.USER, detail="others have come into the queue first"
)
"""What was seen of the queue is not true any more: whoever hears it looks for room again."""


class Entry(msgspec.Struct, frozen=True):
    """The marks as they are to be, and the jobs that make room: these end with the same commit."""

    by: By
    marks: tuple[Record, ...]
    drops: tuple[Job, ...] = ()
    is_sparing: bool = True
    """Whether one fewer goes for each who is replaced by one that comes."""

    def through(self, unit: Unit, now: int) -> Unit | Refusal:
        """The unit, with the marks and the ends that go with its jobs."""
        drops = self._drops(unit)
        told = [dropped(job, j.Context(self.by, unit.command_id), now) for job in drops]
        moves = [move for move in told if move is not None]
        if len(moves) < len(drops):
            return OUTRUN
        return replace(unit, moves=(*unit.moves, *moves), puts=(*unit.puts, *self.marks))

    def _drops(self, unit: Unit) -> list[Job]:
        """Who is to go. Whoever is replaced in a queue makes room too: then one fewer goes."""
        replaced = {key_of(move.job) for move in unit.moves}
        drops = [job for job in self.drops if key_of(job) not in replaced]
        spared = Counter(move.job.queue for move in unit.moves if self.is_sparing)
        spared -= Counter(job.queue for job in self.drops if key_of(job) in replaced)
        for queue in spared.elements():
            youngest = next((job for job in reversed(drops) if job.queue == queue), None)
            if youngest is not None:
                drops.remove(youngest)
        return drops

    def is_outrun(self, outcome: Outcome) -> bool:
        """Whether it is this that was in the way of the unit."""
        match outcome:
            case StaleRecord(record=record):
                return name_of(record) in {name_of(mark) for mark in self.marks}
            case Stale(key=key):
                return key in {key_of(job) for job in self.drops}
            case _:
                return False


def dropped(job: Job, ctx: j.Context, now: int) -> Move | None:
    """The end of a job that waits, as it was seen; `None` if it does not wait."""
    answer = j.decide(job, j.Drop(), now, ctx)
    return Move(job.version, answer.job, answer.events) if isinstance(answer, j.Accepted) else None
