"""Tells the engine how runs ended, many at once: one commit for all that ended meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Sequence

import msgspec

from detent.engine.commands import Beside, Change
from detent.engine.keyless import put_off
from detent.errors import DetentError
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job.table import Cause
from detent.lifecycle.job.values import REASON_MAX
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.profile import PROFILES, Drain
from detent.lifecycle.retry import ErrorInfo
from detent.runtime.context import Asking, Heard
from detent.runtime.ending import Raised, Told, ending
from detent.runtime.executors.api import Died, Ended, Returned, Rung, Stopped
from detent.runtime.office import Office
from detent.runtime.outcomes import Cancelled
from detent.runtime.running import JOBS_LOG, Flight, Why
from detent.stores.api import Failure, LimitKind, LimitRow, Line

DIED = "process_died"
"""The code of the error of an attempt whose process ended without a word."""
STALLED = "stalled"
"""The code of the error of an attempt that did not give its loop back."""
INTERRUPTED = "INTERRUPTED"
"""The code of a job that may run once only and was stopped by a deploy."""
LINES_MAX = 500
"""So many lines go with the commit that ends a job; what is before them goes ahead."""
_CAUSES = {
    Rung.INTERRUPTED: Cause.CONFIRMED,
    Rung.KILLED: Cause.KILLED,
    Rung.ABANDONED: Cause.ABANDONED,
}


_ENDS: dict[type[object], str] = {
    j.Complete: "completed",
    j.Snooze: "was put off",
    j.HandBack: "was handed back",
    j.ConfirmCancel: "was cancelled",
}


class Report(msgspec.Struct, frozen=True, gc=False):
    """How a run ended, and what is to be said about it.

    There is no change if it counts for nothing any more; then its last lines are kept all the same.
    """

    flight: Flight
    ended: Ended
    change: Change | None
    lines: tuple[Line, ...] = ()


class Filed(msgspec.Struct, frozen=True):
    """How many jobs completed, failed or were lost by what was said, and how often it was refused.

    A job that was given back, put off or called off is none of these.
    """

    done: int = 0
    failed: int = 0
    refused: int = 0


class Reporter:
    """Makes reports where the handlers run, and files them in the loop of the store."""

    def __init__(self, engine: Office, by: By) -> None:
        self._engine = engine
        self._by = by

    def report(self, flight: Flight, ended: Ended) -> Report:
        """What is to be said about a run that ended like this."""
        if flight.is_ours:
            return Report(flight, ended, self._change(flight, ended))
        if isinstance(ended, Stopped) and ended.rung is not Rung.INTERRUPTED:
            # Under a lease that has ended the history is closed to us, so the log has it.
            said = f"this run was {ended.rung}: it should have stopped ({flight.why})"
            flight.ctx.heard.say(said, "warning", self._engine.store.now())
        lines = flight.ctx.heard.last(self._engine.store.now())
        return Report(flight, ended, None, lines)

    def _change(self, flight: Flight, ended: Ended) -> Change:
        stored, heard, now = flight.stored, flight.ctx.heard, self._engine.store.now()
        if isinstance(ended, Died):
            return self._lost(flight, ended, now)
        if flight.why is Why.NO_KEY and flight.fault is not None:
            return put_off(stored, self._by, flight.fault, now)
        if flight.why in (Why.DRAIN, Why.NO_ROOM) and _gave_way(ended):
            return self.parting(flight)
        if isinstance(ended, Stopped):
            command = j.ConfirmCancel(lease=stored.job.lease, cause=_CAUSES[ended.rung])
            beside = Beside(lines=heard.last(now))
            return Change(flight.key, command, self._by, beside=beside, known=stored)
        returned = ended.value if isinstance(ended, Returned) else ended
        return ending(stored, returned, self._by, heard, now)

    def _lost(self, flight: Flight, died: Died, now: int) -> Change:
        """It took its process with it: a loss, by the word of the worker that is still there."""
        stored, heard = flight.stored, flight.ctx.heard
        details = msgspec.json.encode(died).decode()
        message = heard.kept(died.reason, REASON_MAX)
        failure = Failure(stored.job.attempt, now, DIED, message, details=heard.mask(details))
        beside = Beside(failure=failure, lines=heard.last(now))
        command = j.Lose(lease=stored.job.lease)
        return Change(flight.key, command, self._by, beside=beside, known=stored)

    def stalled(self, flight: Flight, stall_s: float) -> Change:
        """It has held up all others for so long: a loss, and from now on it runs alone."""
        stored, now = flight.stored, self._engine.store.now()
        why = f"It held up the loop of its worker for {stall_s:g} s: await, or use a plain function"
        beside = Beside(
            failure=Failure(stored.job.attempt, now, STALLED, why),
            lines=flight.ctx.heard.last(now),
        )
        command = j.Lose(lease=stored.job.lease)
        return Change(flight.key, command, self._by, why, beside, known=stored)

    def parting(self, flight: Flight) -> Change:
        """What becomes of a job whose worker has to go before it is done."""
        stored, now = flight.stored, self._engine.store.now()
        if PROFILES[stored.job.profile].drain is Drain.FAIL:
            why = "Its worker was stopped, and a job of this kind runs once"
            told = Told(INTERRUPTED, ("Interrupted",), why, "", retryable=False)
            return ending(stored, told, self._by, flight.ctx.heard, now)
        command = j.HandBack(lease=stored.job.lease)
        beside = Beside(lines=flight.ctx.heard.last(now))
        return Change(flight.key, command, self._by, beside=beside, known=stored)

    def unstorable(self, flight: Flight, error: DetentError) -> Report:
        """What it returned or said cannot be stored: then that is how it ended."""
        change = ending(flight.stored, Raised(error), self._by, Heard(), self._engine.store.now())
        return Report(flight, Raised(error), change)

    async def file(self, reports: Sequence[Report]) -> Filed:
        """What became of those that say something; of the others the lines are kept."""
        told = [one for one in reports if one.change is not None]
        await self._ahead(reports)
        changes = [
            await self._whole(one.flight, one.change) if _is_more(one) else one.change
            for one in told
            if one.change is not None
        ]
        refused = await self._refused(changes) if changes else {}
        for at in refused:
            # The last lines go with the end, in one commit; of one that is refused they stay.
            await self.keep(told[at].flight, changes[at].beside.lines)
        return _filed(changes, refused)

    async def keep(self, flight: Flight, lines: Sequence[Line]) -> None:
        """Lines for the log of a job, whatever has become of it."""
        for at in range(0, len(lines), LINES_MAX):
            some = lines[at : at + LINES_MAX]
            await self._engine.store.append_logs([(flight.key, line) for line in some])

    async def _refused(self, changes: list[Change]) -> dict[int, Refusal]:
        refused = await self._engine.refused(changes)
        unasked = [at for at, one in refused.items() if one.code == "not_asked"]
        if unasked:
            # Those stopped of their own accord, as if they had been asked to: that is a discard.
            for at in unasked:
                changes[at] = _discarding(changes[at])
            again = await self._engine.refused([changes[at] for at in unasked])
            left = {at: again.get(number) for number, at in enumerate(unasked)}
            refused = {at: one for at, one in {**refused, **left}.items() if one is not None}
        return refused

    async def _whole(self, flight: Flight, change: Change) -> Change:
        """With the jobs that come into being if it completes, and the end of a long log."""
        calls = flight.ctx.heard.calls
        lines, now = change.beside.lines, self._engine.store.now()
        if len(lines) > LINES_MAX:
            await self.keep(flight, lines[:-LINES_MAX])
            beside = msgspec.structs.replace(change.beside, lines=lines[-LINES_MAX:])
            change = msgspec.structs.replace(change, beside=beside)
        if not calls or not isinstance(change.command, j.Complete):
            return change
        if rows := _limits_of(calls):
            await self._engine.set_limits(rows)
        return msgspec.structs.replace(change, new=tuple(call.ask(now) for call in calls))

    async def _ahead(self, reports: Sequence[Report]) -> None:
        """What does not go with an end: the last progress, and what a run said that is over."""
        store = self._engine.store
        notes = [
            (one.flight.key, one.flight.lease, note)
            for one in reports
            if (note := one.flight.ctx.heard.note) is not None
        ]
        if notes:
            await store.note(notes, now=store.now())
        for one in reports:
            if one.change is None:
                await self.keep(one.flight, one.lines)


def log_end(flight: Flight, change: Change) -> None:
    """Log how a run ended. Messages and tracebacks of failures hold no secrets any more."""
    job, failure = flight.stored.job, change.beside.failure
    if failure is None:
        took_s = time.monotonic() - flight.since
        word = _ENDS.get(type(change.command), "ended")
        JOBS_LOG.info("job %s (%s) %s after %.3f s", job.id, flight.type, word, took_s)
        return
    # The traceback has the whole message.
    said = (failure.message or "").partition("\n")[0]
    told = (job.id, flight.type, job.attempt, failure.type or failure.code, said)
    text = "job %s (%s) failed, attempt %d: %s: %s"
    record = JOBS_LOG.makeRecord(JOBS_LOG.name, logging.ERROR, __file__, 0, text, told, None)
    # Formatters write this below the message, as they do with the traceback of an exception.
    record.exc_text = (failure.backtrace or "").rstrip() or None
    if JOBS_LOG.isEnabledFor(logging.ERROR):
        JOBS_LOG.handle(record)


def timing_out(flight: Flight, by: str, now: int) -> Change:
    """Its time is up: what follows from that is for the lifecycle to say, as always."""
    return _late(flight, None, By(Actor.SYSTEM, by), now)


def failing(flight: Flight, by: By, now: int) -> Change:
    """The same by the word of its worker, if the clock of the store says that it is not so."""
    code = _late_code(flight)
    return _late(flight, j.Fail(lease=flight.stored.job.lease, code=code), by, now)


def _late(flight: Flight, command: j.Fail | None, by: By, now: int) -> Change:
    job, code = flight.stored.job, _late_code(flight)
    why = f"It ran longer than the {(job.active_us or 0) / 1_000_000:g} s that it may take"
    beside = Beside(failure=Failure(job.attempt, now, code, why))
    error = ErrorInfo(code)
    return Change(flight.key, command, by, beside=beside, error=error, known=flight.stored)


def _late_code(flight: Flight) -> str:
    return PROFILES[flight.stored.job.profile].code(j.JobState.ACTIVE, j.JobEvent.TIME_OUT)


def _is_more(report: Report) -> bool:
    change = report.change
    return bool(report.flight.ctx.heard.calls) or (
        change is not None and len(change.beside.lines) > LINES_MAX
    )


def _gave_way(ended: Ended) -> bool:
    """Whether it ended because it was stopped, and not by itself."""
    is_asked = isinstance(ended, Raised) and isinstance(ended.error, Cancelled)
    return is_asked or isinstance(ended, Stopped)


def _filed(changes: Sequence[Change], refused: Container[int]) -> Filed:
    commands = [one.command for at, one in enumerate(changes) if at not in refused]
    done = sum(isinstance(one, j.Complete) for one in commands)
    failed = sum(isinstance(one, j.Fail | j.Lose) for one in commands)
    return Filed(done, failed, len(changes) - len(commands))


def _discarding(change: Change) -> Change:
    lease = getattr(change.command, "lease", None)
    return msgspec.structs.replace(change, command=j.Fail(lease=lease, code="DISCARD"))


def _limits_of(calls: Sequence[Asking]) -> list[LimitRow]:
    return [
        LimitRow(LimitKind.KEY, key, limit, tenant)
        for call in calls
        for (tenant, key), limit in call.limit().items()
    ]
