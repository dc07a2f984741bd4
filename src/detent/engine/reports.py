"""What a worker says about its jobs in a form that can be sent, and what it is answered. Pure.

A change names an actor, and may be anything that the engine can do. A report is less: it is about a
job that its sender holds, under the lease it is held by, and nothing in it says who speaks. Whoever
receives it knows that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from detent.engine.asks import Ask
from detent.engine.commands import Beside, Change
from detent.lifecycle import job as j
from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.retry import ErrorInfo
from detent.stores.api import Failure, Line, Note, Stored, key_of


class Report(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing said about one job. Without an event it is only lines, and how far it is.

    `event` is what is asked to be written; `time_out` asks whether its time is up. `delay_us` is of
    a snooze, or what a failed run wants to wait; `new` are jobs that come with a completion.
    """

    job_id: str
    lease: str
    event: j.JobEvent | None = None
    result: str | None = None
    failure: Failure | None = None
    error: ErrorInfo | None = None
    code: str | None = None
    cause: j.Cause | None = None
    delay_us: int | None = None
    reason: str | None = None
    checkpoint: str | None = None
    lines: tuple[Line, ...] = ()
    note: Note | None = None
    new: tuple[Ask, ...] = ()


class Answered(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One of the three answers to a report; none of them to one without an event."""

    accepted: j.Accepted | None = None
    unchanged: j.Unchanged | None = None
    refusal: Refusal | None = None

    @property
    def answer(self) -> j.Answer | None:
        """The one that it is."""
        return self.accepted or self.unchanged or self.refusal


def answered(answer: j.Answer) -> Answered:
    """An answer as it is sent."""
    match answer:
        case j.Accepted():
            return Answered(accepted=answer)
        case j.Unchanged():
            return Answered(unchanged=answer)
        case _:
            return Answered(refusal=answer)


def report_of(change: Change) -> Report:
    """The change of a worker as it is sent."""
    command, beside, known = change.command, change.beside, change.known
    lease = command.lease if isinstance(command, j.Report) else known and known.job.lease
    return Report(
        job_id=change.key[1],
        lease=lease or "",
        event=j.JobEvent.TIME_OUT if command is None else command.event,
        result=beside.result,
        failure=beside.failure,
        error=change.error,
        code=getattr(command, "code", None),
        cause=getattr(command, "cause", None),
        delay_us=command.delay_us if isinstance(command, j.Snooze) else change.delay_us,
        reason=change.reason,
        checkpoint=beside.checkpoint,
        lines=beside.lines,
        new=change.new,
    )


def change_of(report: Report, stored: Stored, worker: str, now: int) -> Change:
    """The same for the engine, said by that worker about the job as it is."""
    is_time = report.event is j.JobEvent.TIME_OUT
    failure = report.failure
    if failure is not None:
        failure = msgspec.structs.replace(failure, attempt=stored.job.attempt, at=now)
    return Change(
        key_of(stored.job),
        None if is_time or report.event is None else EVENTS[report.event](report),
        By(Actor.SYSTEM if is_time else Actor.WORKER, worker),
        reason=report.reason,
        beside=Beside(report.result, failure, report.lines, report.checkpoint),
        error=report.error,
        known=stored,
        delay_us=report.delay_us if report.event is j.JobEvent.FAIL else None,
        new=report.new,
    )


EVENTS: Final[Mapping[j.JobEvent, Callable[[Report], j.Command]]] = {
    j.JobEvent.COMPLETE: lambda one: j.Complete(lease=one.lease, digest=_digest(one.result)),
    j.JobEvent.FAIL: lambda one: j.Fail(
        lease=one.lease,
        code=one.code or "handler_error",
        digest=_digest(None if one.failure is None else one.failure.message),
    ),
    j.JobEvent.SNOOZE: lambda one: j.Snooze(lease=one.lease, delay_us=one.delay_us or 0),
    j.JobEvent.HAND_BACK: lambda one: j.HandBack(lease=one.lease),
    j.JobEvent.LOSE: lambda one: j.Lose(lease=one.lease, code=one.code),
    j.JobEvent.CANCEL: lambda one: j.ConfirmCancel(
        lease=one.lease, cause=one.cause or j.Cause.CONFIRMED
    ),
    j.JobEvent.CANCEL_SEEN: lambda one: j.SeeCancel(lease=one.lease),
    j.JobEvent.INTERRUPTED: lambda one: j.Interrupt(lease=one.lease),
    j.JobEvent.CHECKPOINTED: lambda one: j.Checkpoint(
        lease=one.lease, digest=_digest(one.checkpoint) or ""
    ),
}
"""What a worker may say; whatever else there is, is not for it."""


def before_it(report: Report, worker: str, history: Sequence[Event]) -> Event | None:
    """The event of this very report, if it was carried out before and its answer was lost.

    Its lease is in the history since the claim. What this worker said under it, before anybody
    claimed again, can only have come from here.
    """
    claims = [at for at, event in enumerate(history) if event.lease is not None]
    ours = next((at for at in claims if history[at].lease == report.lease), None)
    if ours is None:
        return None
    until = next((at for at in claims if at > ours), len(history))
    said = (event for event in history[ours + 1 : until] if event.actor_id == worker)
    return next((one for one in said if report.event in (one.name, one.cause)), None)


def _digest(text: str | None) -> str | None:
    """What the history keeps of a text; never by the word of whoever sent it."""
    return None if text is None else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
