"""What engines say about the jobs they have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from detent.engine.commands import Beside, Change
from detent.engine.limits import LINE_CHARS_MAX, LOG_LINES_MAX, need_result
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job.waking import limit_end
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.retry import ErrorInfo
from detent.lifecycle.views import CANCELLED_CODE, ENGINE
from detent.stores.api import Failure, Line, Note, key_of
from detent.surfaces.engines.desk import Desk
from detent.surfaces.engines.faults import Fault, refused, unheld
from detent.surfaces.engines.links import Held, Link, Links
from detent.surfaces.engines.messages import (
    Acked,
    Complete,
    Error,
    Failed,
    Log,
    Progress,
    Report,
    Started,
)
from detent.surfaces.engines.subscribers import Subscribers
from detent.surfaces.http.exchange import digest_of

START_US: Final = 60_000_000
"""How long an engine may keep a job waiting that it has confirmed."""
_TOO_MUCH: Final = f"one run may say {LOG_LINES_MAX} lines; the rest is not kept"


class Reporting:
    """Acknowledge, begin, tell, complete, fail."""

    def __init__(self, desk: Desk, links: Links, subscribers: Subscribers) -> None:
        self._desk = desk
        self._links = links
        self._subscribers = subscribers

    async def acked(self, link: Link, told: Acked) -> dict[str, Any]:
        """The job has come: it runs, or waits in the engine for its turn."""
        async with self._turn(link, told) as held:
            if told.started:
                return await self._told(link, held, j.Acknowledge(lease=held.lease))
            return await self._told(link, held, j.Receive(lease=held.lease, start_us=START_US))

    async def started(self, link: Link, told: Started) -> dict[str, Any]:
        """A job that waited in the engine runs."""
        async with self._turn(link, told) as held:
            return await self._told(link, held, j.Acknowledge(lease=held.lease))

    async def progress(self, link: Link, told: Progress) -> dict[str, Any]:
        """How far it is."""
        async with self._turn(link, told) as held:
            _need_running(held)
            percent = round(told.progress)
            held.note = Note(self._desk.now(), held.job.attempt, percent, told.message)
            await self._subscribers.progress(held, told.progress)
            return {}

    async def log(self, link: Link, told: Log) -> dict[str, Any]:
        """What it says."""
        async with self._turn(link, told) as held:
            _need_running(held)
            room = max(LOG_LINES_MAX - held.lines, 0)
            now, key = self._desk.now(), key_of(held.job)
            lines = [Line(now, text[:LINE_CHARS_MAX]) for text in told.lines[:room]]
            if len(told.lines) > room > 0:
                lines.append(Line(now, _TOO_MUCH, "warning"))
            held.lines += len(told.lines)
            if lines:
                await self._desk.engine.store.append_logs([(key, line) for line in lines])
            return {"kept": min(len(told.lines), room)}

    async def complete(self, link: Link, told: Complete) -> dict[str, Any]:
        """It has succeeded."""
        text = None if isinstance(told.result, UnsetType) else _json(told.result)
        if text is not None:
            need_result("result", text)
        digest = None if text is None else digest_of(text)
        async with self._turn(link, told) as held:
            command = j.Complete(lease=held.lease, digest=digest)
            return await self._told(link, held, command, Beside(result=text))

    async def failed(self, link: Link, told: Failed) -> dict[str, Any]:
        """It has failed, was refused, or has heeded that it was called off."""
        error = told.error
        async with self._turn(link, told) as held:
            if error.code == CANCELLED_CODE and held.job.state is j.JobState.ACTIVE:
                confirmed = await self._confirmed(link, held)
                if confirmed is not None:
                    return confirmed
            command: j.Report = j.Fail(lease=held.lease, code=error.code)
            if held.job.state is j.JobState.PENDING:
                command = j.Refuse(lease=held.lease, code=error.code)
            beside = Beside(failure=self._failure(held, error))
            info = ErrorInfo(error.code, retryable=error.retryable)
            return await self._told(link, held, command, beside, info)

    def _failure(self, held: Held, error: Error) -> Failure:
        details = None if isinstance(error.details, UnsetType) else _json(error.details)
        at, attempt = self._desk.now(), held.job.attempt
        return Failure(attempt, at, error.code, error.message, details=details)

    async def _confirmed(self, link: Link, held: Held) -> dict[str, Any] | None:
        """The end of a job that was called off; nothing if nobody has called it off."""
        try:
            return await self._told(link, held, j.ConfirmCancel(lease=held.lease))
        except Fault as fault:
            if fault.facts.get("refusal") != "not_asked":
                raise
            return None

    # --- inside ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self, link: Link, told: Report) -> AsyncIterator[Held]:
        """The job, if the engine holds it under this lease, when all before it are answered."""
        held = link.held.get(told.job_id)
        if held is not None and held.lease == told.lease:
            async with held.turn:
                if link.held.get(told.job_id) is held:
                    yield held
                    return
        [stored] = await self._desk.engine.store.get([(link.tenant, told.job_id)])
        raise unheld(None if stored is None else stored.job, told.job_id, link.holder)

    async def _told(
        self,
        link: Link,
        held: Held,
        command: j.Report,
        beside: Beside = Beside(),  # noqa: B008 - a frozen value
        error: ErrorInfo | None = None,
    ) -> dict[str, Any]:
        change = Change(
            key_of(held.job),
            command,
            By(Actor.WORKER, link.holder),
            beside=beside,
            error=error,
            known=held.stored,
        )
        [answer] = await self._desk.engine.carry_out([change])
        if isinstance(answer, Refusal):
            raise await self._refused(link, held, answer)
        return self._heard(link, held, answer.job)

    def _heard(self, link: Link, held: Held, job: j.Job) -> dict[str, Any]:
        held.hear(job)
        if job.lease != held.lease and link.held.get(job.id) is held:
            self._links.drop(link, job.id)
        reply: dict[str, Any] = {"status": ENGINE.word(job)}
        until = limit_end(job) if job.lease == held.lease else None
        if until is not None:
            reply["deadlineAt"] = until // 1_000
        return reply

    async def _refused(self, link: Link, held: Held, refusal: Refusal) -> Fault:
        """Why not; what is not the engine's any more is not kept for it."""
        [stored] = await self._desk.engine.store.get([key_of(held.job)])
        job = None if stored is None else stored.job
        if job is None or job.lease != held.lease:
            if link.held.get(held.job.id) is held:
                self._links.drop(link, held.job.id)
            return unheld(job, held.job.id, link.holder)
        held.hear(job)
        fault = refused(refusal, job)
        fault.facts["refusal"] = refusal.code
        return fault


def _need_running(held: Held) -> None:
    if held.job.state is not j.JobState.ACTIVE:
        why = "the job is dispatched: acknowledge it before you report on it"
        raise Fault("INVALID_TRANSITION", why, status="dispatched")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
