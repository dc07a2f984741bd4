"""Jobs for engines: wanted over HTTP or over a socket, and shown."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from detent.engine.access import Scope
from detent.engine.asks import Ask
from detent.engine.enqueueing import Clash
from detent.engine.limits import need_job
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import PROFILES, Deadlines, ProfileName
from detent.lifecycle.replay import at_time
from detent.lifecycle.retry import RetryPolicy
from detent.lifecycle.views import CATEGORIES, ENGINE, Category
from detent.stores.api import Stored, key_of
from detent.surfaces.engines import messages as m
from detent.surfaces.engines.desk import Desk
from detent.surfaces.engines.faults import BAD, Fault, misheard, refused
from detent.surfaces.engines.kinds import Kinds
from detent.surfaces.engines.links import Peer
from detent.surfaces.engines.projecting import lived
from detent.surfaces.engines.registering import QUEUE
from detent.surfaces.engines.shown import Asker, job_of
from detent.surfaces.http.caller import Caller
from detent.surfaces.http.exchange import Call, Reply

_log = logging.getLogger(__name__)

_USUAL: Final = PROFILES[ProfileName.ENGINE].deadlines
_ONCE: Final = RetryPolicy(max_attempts=1)
_DIGITS_MAX: Final = 15


class Submitting:
    """New jobs, and jobs that there are."""

    def __init__(self, desk: Desk, kinds: Kinds) -> None:
        self._desk = desk
        self._kinds = kinds

    # --- new jobs -------------------------------------------------------------------------------

    async def post(self, call: Call) -> Reply:
        """A new job for an engine; what does not fit is refused before it is one."""
        try:
            wanted = msgspec.json.decode(call.body, type=m.Submit)
        except msgspec.ValidationError as error:
            raise self._noted(misheard(error), "") from None
        except (msgspec.DecodeError, RecursionError):
            raise self._noted(Fault(BAD, "the body is no JSON"), "") from None
        job = await self._submitted(call.caller, wanted)
        told = msgspec.json.encode(job)
        return Reply(202, told, headers=(("location", f"/engine/jobs/{job['jobId']}"),))

    async def submit(self, peer: Peer, wanted: m.Submit) -> dict[str, Any]:
        """The same over a socket."""
        peer.caller.need_scope(Scope.PRODUCE)
        return {"job": await self._submitted(peer.caller, wanted)}

    async def _submitted(self, caller: Caller, wanted: m.Submit) -> dict[str, Any]:
        ask = self._ask(wanted, caller.tenant)
        caller.need_queue(ask.queue)
        # Its limits first: what is nested too deeply is not even looked at.
        need_job(ask)
        try:
            await self._kinds.need_fit(caller.tenant, wanted.job_type, wanted.payload)
        except Fault as fault:
            raise self._noted(fault, wanted.job_type) from None
        [answer] = await self._desk.engine.enqueue([ask], caller.actor)
        if isinstance(answer, Refusal):
            raise refused(answer, None)
        if isinstance(answer, Clash):
            raise Fault("CONFLICT", "a job like this is there already")
        [stored] = await self._desk.engine.store.get([key_of(answer.job)])
        assert stored is not None  # noqa: S101 - it is durable
        return job_of(stored, None)

    def _ask(self, wanted: m.Submit, tenant: str) -> Ask:
        queue, attempts = wanted.queue or QUEUE, wanted.max_attempts
        payload = msgspec.json.encode({"args": (), "kwargs": wanted.payload}).decode()
        return Ask(
            type=wanted.job_type,
            payload=payload,
            meta=msgspec.json.encode(Asker(wanted.user_id)).decode(),
            tenant=tenant,
            profile=ProfileName.ENGINE,
            queue=queue,
            deadlines=self._deadlines(wanted.deadlines, queue),
            retry=_ONCE if attempts == 1 else RetryPolicy(max_attempts=attempts),
        )

    def _deadlines(self, asked: m.Deadlines, queue: str) -> Deadlines:
        """Those of the job, else those of the queue, else the usual ones."""
        of_queue = self._desk.settings.engine_deadlines_ms.get(queue, (None, None, None))
        own = (asked.queued, asked.dispatched, asked.running)
        usual = (_USUAL.available_us, _USUAL.pending_us, _USUAL.active_us)
        told = [mine or its for mine, its in zip(own, of_queue, strict=True)]
        spans = [one * 1_000 if one else other for one, other in zip(told, usual, strict=True)]
        return Deadlines(*spans)

    def _noted(self, fault: Fault, job_type: str) -> Fault:
        """What is refused before it is a job is a failure too, and is counted as one."""
        if CATEGORIES.get(fault.code, Category.VALIDATION) is Category.VALIDATION:
            told = {"code": fault.code, "jobType": job_type, "reason": fault.message}
            _log.warning("job_refused %s", msgspec.json.encode(told).decode())
            self._desk.gauges.failed(Category.VALIDATION)
        return fault

    # --- jobs that there are --------------------------------------------------------------------

    async def get(self, call: Call) -> Reply:
        """A job as it is, or with `at` (epoch milliseconds) as it was."""
        name, at = call.param("id").lower(), _instant(call.query.get("at"))
        [stored] = await self._desk.engine.store.get([(call.caller.tenant, name)])
        if stored is None or stored.job.erased_at is not None:
            raise Fault("UNKNOWN_JOB", f"there is no job {name[:100]}")
        call.caller.need_queue(stored.job.queue)
        return Reply(200, msgspec.json.encode(await self._shown(stored, at)))

    async def _shown(self, stored: Stored, at: int | None) -> dict[str, Any]:
        if at is None and ENGINE.word(stored.job) != "failed":
            return job_of(stored, None)
        history = await self._desk.engine.store.history(key_of(stored.job))
        until = stored.job.last_at if at is None else at * 1_000 + 999
        events = [event for event in history if event.at <= until]
        job: Job | None = at_time(events, until)
        if job is None:
            raise Fault("UNKNOWN_JOB", f"there was no job {stored.job.id} then")
        told = lived(stored, events)
        error = told[-1].data.get("error") if told and told[-1].name == "JOB_FAILED" else None
        return job_of(stored, error, job)


def _instant(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise Fault(BAD, "at must be an instant in epoch milliseconds", field="at")
    return int(text)
