"""A job that was enqueued: its result, its state, its history, its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from math import inf
from typing import Any, Generic, TypeVar, cast

import msgspec

from detent.app.operating import Explanation, explained
from detent.app.options import instant_of
from detent.app.reference import Reference
from detent.app.waiting import POLL_S_MAX, looks, moment
from detent.engine.enqueueing import Enqueued
from detent.engine.verbs import Rerun, RunNow, Verb
from detent.errors import JobCancelled, JobFailed, ResultTimeout, UnknownJob
from detent.lifecycle import job as j
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Refusal
from detent.runtime.bridge import awaiting, awaiting_each, blocking, blocking_each
from detent.runtime.outcomes import Span
from detent.stores.api import Logged, Stored

R_co = TypeVar("R_co", covariant=True)
_log = logging.getLogger(__name__)
_TELL_S = 5.0
"""After so long it is told what a job that is waited for waits for itself."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is at one moment."""

    id: str
    type: str
    state: str
    queue: str
    priority: int
    attempt: int
    failures: int
    created_at: datetime
    state_at: datetime
    run_at: datetime | None = None
    ended_at: datetime | None = None
    cause: str | None = None
    cancel_requested: bool = False
    percent: int | None = None
    message: str = ""
    error_code: str | None = None
    error_message: str | None = None

    @property
    def is_ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.ended_at is not None


class LogLine(msgspec.Struct, frozen=True):
    """A line of a job's log."""

    at: datetime
    level: str
    text: str


class Handle(Reference, Generic[R_co]):
    """One job, wherever it is by now. Methods that begin with an a are awaited, the others wait."""

    way = "handle"

    async def _result(self, timeout: Span | None = None) -> R_co:  # noqa: ASYNC109 - the job goes on
        """What the handler returned, waited for; `JobFailed` or `JobCancelled` if it did not."""
        stored = await self._ended(timeout)
        if stored.job.state is j.JobState.COMPLETED:
            returned: R_co = self.app.returned(stored.body.type, stored.result)
            return returned
        raise _why_not(stored)

    async def _status(self) -> Status:
        """Where it is now."""
        return status_of(await self._stored())

    async def _why(self) -> Explanation:
        """Why it is where it is: what it waits for, who has it, or how it ended."""
        return explained(await (await self.app.engine()).queries.why((self.tenant, self.id)))

    # --- what people do to it; `actor` is who the history names, otherwise that of the app --------

    async def _cancel(self, reason: str | None = None, *, actor: str | None = None) -> Status:
        """Call it off. A job that runs is asked to stop; one that has ended is refused."""
        return await self._apply(j.Cancel(), reason, actor)

    async def _run_now(self, reason: str | None = None, *, actor: str | None = None) -> Status:
        """Let it start, if it waits for its time; one that could start already is left alone."""
        return await self._apply(RunNow(), reason, actor)

    async def _reschedule(
        self, at: datetime, reason: str | None = None, *, actor: str | None = None
    ) -> Status:
        """Give it another time to start, if it waits for one."""
        return await self._apply(j.Reschedule(instant_of("at", at)), reason, actor)

    async def _reprioritise(
        self, priority: int, reason: str | None = None, *, actor: str | None = None
    ) -> Status:
        """Give it another priority; higher goes first."""
        return await self._apply(j.Reprioritise(priority), reason, actor)

    async def _move(
        self, queue: str, reason: str | None = None, *, actor: str | None = None
    ) -> Status:
        """Put it into another queue, at its end, while it waits."""
        return await self._apply(j.Move(queue), reason, actor)

    async def _hold(self, reason: str | None = None, *, actor: str | None = None) -> Status:
        """Keep it from being started until it is released."""
        return await self._apply(j.Hold(), reason, actor)

    async def _release(self, reason: str | None = None, *, actor: str | None = None) -> Status:
        """Let it start again."""
        return await self._apply(j.Activate(), reason, actor)

    async def _rerun(self, reason: str, *, actor: str | None = None) -> Handle[R_co]:
        """A new job like this one, which must have ended; this one stays as it is."""
        answer = await self._applied(Rerun(), reason, actor)
        return self.app.handle_of(self.id, cast("Enqueued", answer))

    async def _apply(self, verb: Verb, reason: str | None, actor: str | None) -> Status:
        await self._applied(verb, reason, actor)
        return await self._status()

    async def _applied(self, verb: Verb, reason: str | None, actor: str | None) -> object:
        operators = (await self.app.engine()).operators
        key, by = (self.tenant, self.id), self.app.by_whom(actor)
        [answer] = await operators.apply(verb, [key], by, reason)
        if isinstance(answer, Refusal):
            raise self._unknown() if answer.code == "unknown_job" else answer.error()
        return answer

    async def _history(self) -> list[Event]:
        """Every move it has made, oldest first: who, when, why."""
        engine = await self.app.engine()
        events = await engine.store.history((self.tenant, self.id))
        if not events:
            raise self._unknown()
        # A store in memory has the words of the table, others their letters: show the letters.
        return msgspec.convert(msgspec.to_builtins(events), list[Event])

    async def _logs(self, *, follow: bool = False) -> AsyncIterator[LogLine]:
        """Its log so far; with `follow` until it ends."""
        cursor, is_last = 0, not follow
        store = (await self.app.engine()).store
        await self._stored()
        while True:
            lines = await store.logs((self.tenant, self.id), cursor)
            for one in lines:
                cursor = one.cursor
                yield _line_of(one)
            if lines:
                continue
            if is_last:
                return
            # The last lines are committed with the end: after it one more look finds them all.
            is_last = (await self._stored()).job.ended_at is not None
            await asyncio.sleep(0 if is_last else POLL_S_MAX)

    result, aresult = blocking(_result), awaiting(_result)
    status, astatus = blocking(_status), awaiting(_status)
    why, awhy = blocking(_why), awaiting(_why)
    cancel, acancel = blocking(_cancel), awaiting(_cancel)
    rerun, arerun = blocking(_rerun), awaiting(_rerun)
    run_now, arun_now = blocking(_run_now), awaiting(_run_now)
    reschedule, areschedule = blocking(_reschedule), awaiting(_reschedule)
    reprioritise, areprioritise = blocking(_reprioritise), awaiting(_reprioritise)
    move, amove = blocking(_move), awaiting(_move)
    hold, ahold = blocking(_hold), awaiting(_hold)
    release, arelease = blocking(_release), awaiting(_release)
    history, ahistory = blocking(_history), awaiting(_history)
    logs, alogs = blocking_each(_logs), awaiting_each(_logs)

    async def _stored(self) -> Stored:
        [stored] = await (await self.app.engine()).store.get([(self.tenant, self.id)])
        if stored is None:
            raise self._unknown()
        return stored

    async def _ended(self, within: Span | None) -> Stored:
        patience = _TELL_S
        async for waited in looks(within):
            stored = await self._stored()
            if stored.job.ended_at is not None:
                return stored
            if waited > patience:
                # Whoever waits for ever should know what for: most often nobody works.
                _log.warning("job %s is waited for: %s", self.id, (await self._why()).answer)
                patience = inf
        why = f"Job {self.id} is {stored.job.state} and has not ended in time; it goes on"
        why = f"{why}. {(await self._why()).answer}"
        raise ResultTimeout(why, id=self.id, state=stored.job.state.value)

    def _unknown(self) -> UnknownJob:
        why = "another store, another tenant, or it was forgotten"
        return UnknownJob(f"There is no job {self.id}: {why}", id=self.id, tenant=self.tenant)


def _why_not(stored: Stored) -> JobFailed | JobCancelled:
    job, error = stored.job, stored.failures[-1] if stored.failures else None
    told: dict[str, Any] = {
        "id": job.id,
        "cause": None if job.cause is None else str(job.cause),
        "attempt": job.attempt,
        "error_code": error.code if error else str(job.cause),
        "error_message": error.message if error else "",
    }
    if job.state is j.JobState.CANCELLED:
        return JobCancelled(f"Job {job.id} was cancelled ({job.cause})", **told)
    why = f"{error.type or error.code}: {error.message}" if error else f"{job.cause}"
    return JobFailed(f"Job {job.id} failed for good ({job.cause}): {why}", **told)


def status_of(stored: Stored) -> Status:
    """The same as the store has it, for people."""
    job, note = stored.job, stored.note
    error = stored.failures[-1] if stored.failures else None
    return Status(
        id=job.id,
        type=stored.body.type,
        state=job.state.value,
        queue=job.queue,
        priority=job.priority,
        attempt=job.attempt,
        failures=job.failures,
        created_at=moment(job.created_at),
        state_at=moment(job.state_at),
        run_at=None if job.run_at is None else moment(job.run_at),
        ended_at=None if job.ended_at is None else moment(job.ended_at),
        cause=None if job.cause is None else str(job.cause),
        cancel_requested=job.cancel_at is not None,
        percent=note.percent if note else None,
        message=note.text if note else "",
        error_code=error.code if error else None,
        error_message=error.message if error else None,
    )


def _line_of(logged: Logged) -> LogLine:
    return LogLine(moment(logged.line.at), logged.line.level, logged.line.text)
