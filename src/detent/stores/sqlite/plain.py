"""The fast path for the two most common units: a plain new job, a plain completion.

Whatever is odd about a unit is nothing for here: `take` says no, and it goes the long way, where
all fences are looked at one by one. What is taken here would have been taken there, row for row.
"""

from __future__ import annotations

from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, JobState
from detent.stores.api import Move, New, Unit
from detent.stores.sqlite import rows
from detent.stores.sqlite.known import Known
from detent.stores.sqlite.pending import Head, Pending, head_of
from detent.stores.sqlite.spots import spot_of
from detent.stores.sqlite.writing import Writing

_ACTIVE, _COMPLETED = JobState.ACTIVE.value, JobState.COMPLETED.value
_NUL = "\0"
_ESCAPED = "\\u0000"


class Plain:
    """Judges and writes plain units in one go."""

    def __init__(self, pending: Pending, known: Known, writing: Writing) -> None:
        self._pending = pending
        self._known = known
        self._writing = writing

    def take(self, unit: Unit) -> bool:
        """Whether it was plain, and is written."""
        if unit.flow is not None or unit.puts or unit.gates or unit.limits:
            return False
        moves, new = unit.moves, unit.new
        if len(moves) == 1 and not new:
            return self._is_done(moves[0])
        return len(new) == 1 and not moves and self._is_born(unit, new[0])

    # --- a completion ---------------------------------------------------------------------------

    def _is_done(self, move: Move) -> bool:
        job = move.job
        if not _is_end(move):
            return False
        head = self._known.head((job.tenant, job.id))
        if head is None or not _is_fenced(head, move):
            return False
        event = move.events[0]
        row = rows.event_row(event)
        said = f"{event.actor_id}{event.command_id}{job.cause}{move.result}"
        if not _is_told(said, row[-1]):
            return False
        self._write_done(head, move, row)
        return True

    def _write_done(self, head: Head, move: Move, event: tuple[object, ...]) -> None:
        job, pending, seq = move.job, self._pending, head.seq
        pending.add_row("job_done", rows.done_row(job, move.wake_at, seq, move.version))
        pending.record_row(event)
        pending.shift(job.tenant, job.queue, _ACTIVE, _COMPLETED)
        if move.result is not None:
            pending.add("result_put", seq, move.result, move.result_until)
        if head.wire:
            pending.add("lease_end", head.lease)
        if pending.has_handed:
            pending.add("unhand", seq)
        if pending.has_limits:
            # It made room, and somebody may be waiting for just that.
            self._writing.has_made_available = True
        renewed = head_of(seq, job, head.type, head.is_unique, head.key)
        pending.heads[job.tenant, job.id] = renewed

    # --- a birth --------------------------------------------------------------------------------

    def _is_born(self, unit: Unit, new: New) -> bool:
        job, body = new.job, new.body
        if unit.command_id != job.id or not _is_lone(new):
            return False
        event = rows.event_row(new.events[0])
        body_row = rows.body_row(0, body)
        names = f"{job.tenant}{job.id}{job.queue}{job.profile}{body.type}{body.key}{body.schema}"
        said = f"{names}{event[8]}{event[9]}{body.payload}{body.meta}"
        if not _is_told(said, event[-1]) or not _is_told("", body_row[4]):
            return False
        self._write_born(new, event, body_row)
        return True

    def _write_born(
        self, new: New, event: tuple[object, ...], body_row: tuple[object, ...]
    ) -> None:
        job, pending, kind, key = new.job, self._pending, new.body.type, new.body.key
        seq = pending.next_seq()
        pending.add_row("job_born", (seq, *rows.born_row(job), kind, key, new.wake_at, 0, 0))
        pending.add_row("body_insert", (seq, *body_row[1:]))
        pending.record_row(event)
        self._writing.has_made_available |= job.state is JobState.AVAILABLE
        pending.count(None, spot_of(job, kind, key))
        pending.heads[job.tenant, job.id] = head_of(seq, job, kind, 0, key)


def _is_end(move: Move) -> bool:
    """A success with nothing but a result beside it."""
    if move.failure is not None or move.lines or move.checkpoint is not None:
        return False
    return (
        move.job.state is JobState.COMPLETED
        and move.job.step is None
        and not move.job.wire
        and move.meta is None
        and move.taken_by is None
        and not move.lost
        and _follows(move.job, move.events, move.version)
    )


def _is_fenced(head: Head, move: Move) -> bool:
    """The version and the lease are those of the job."""
    return (
        head.version == move.version
        and head.state == _ACTIVE
        and move.lease in (None, head.lease)
        and not head.is_unique
        and head.queue == move.job.queue
    )


def _is_lone(new: New) -> bool:
    """Neither keys, nor a workflow, nor tags, and nothing has happened to it yet."""
    job = new.job
    return (
        new.unique is None
        and new.idempotency is None
        and job.workflow is None
        and job.step is None
        and job.lease is None
        and not new.body.tags
        and _follows(job, new.events, 0)
    )


def _follows(job: Job, events: tuple[Event, ...], version: int) -> bool:
    if len(events) != 1 or job.version != version + 1:
        return False
    event = events[0]
    return event.version == job.version and event.record == job.id and event.tenant == job.tenant


def _is_told(said: str, rest: object) -> bool:
    """Whether any database can keep these texts; what is no ASCII is looked at by others."""
    if _NUL in said or not said.isascii():
        return False
    return rest is None or _ESCAPED not in str(rest)
