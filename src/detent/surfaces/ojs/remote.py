"""What workers of our own say over the wire, beyond the specification: many things at once.

A batch of reports is one commit, with log lines, progress and the jobs that follow. Every item is
judged by the lease that it names, which it must, and by what the key of the caller is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from detent.engine import limits
from detent.engine.access import Scope
from detent.engine.asks import Ask, is_keyed
from detent.engine.reports import EVENTS, Answered, Report, answered, before_it, change_of
from detent.lifecycle import job as j
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import Stored, key_of
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.desk import Desk, read_body
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.reading import need_text
from detent.surfaces.ojs.workers import Workers

REPORTS_MAX: Final = 500
LINES_MAX: Final = 500
"""Of one report."""
_TEXT_MAX: Final = 65_536


class _Reports(msgspec.Struct, frozen=True):
    worker_id: str | None = None
    reports: list[Report] = []


class _Wait(msgspec.Struct, frozen=True):
    wait_ms: int = 0
    seen: str | None = None


class _Asked(msgspec.Struct, frozen=True):
    job_id: str = ""
    lease: str = ""


class _Gone(msgspec.Struct, frozen=True):
    worker_id: str | None = None
    lapsed: bool = False


class Remote:
    """The operations of `detent worker --server`."""

    def __init__(self, desk: Desk, workers: Workers) -> None:
        self._desk = desk
        self._workers = workers

    # --- operations -----------------------------------------------------------------------------

    async def report(self, call: Call) -> Reply:
        """How jobs went, many at once; an answer for each, in order."""
        asked = read_body(call, _Reports)
        worker = need_text("worker_id", asked.worker_id)
        if len(asked.reports) > REPORTS_MAX:
            raise invalid(f"at most {REPORTS_MAX} reports go together", field="reports")
        tenant, store = call.caller.tenant, self._desk.engine.store
        found = await store.get([(tenant, one.job_id) for one in asked.reports])
        reports = [self._whole(call, one) for one in asked.reports]
        told = list(zip(reports, found, strict=True))
        for report, stored in told:
            self._need_right(call, report, stored)
        known = [(report, stored) for report, stored in told if stored is not None]
        answers = iter(await self._carried_out(known, worker))
        body = [_unknown(report) if stored is None else next(answers) for report, stored in told]
        return self._desk.reply({"answers": body, "now": self._desk.now()})

    async def wait(self, call: Call) -> Reply:
        """Return when there may be something to fetch, or the time is over."""
        asked, desk = read_body(call, _Wait), self._desk
        wait_s = min(max(asked.wait_ms, 0) / 1_000, desk.settings.poll_s_max)
        await desk.service.wait_for_work(wait_s, desk.seen_here(asked.seen))
        return desk.reply({"now": desk.now(), "key_queues": call.caller.queues})

    async def results(self, call: Call) -> Reply:
        """What came out of the steps before the job, for whoever holds it."""
        asked, flows = read_body(call, _Asked), self._desk.engine.workflows
        stored = await self._desk.stored(call, asked.job_id)
        if stored.job.lease != asked.lease:
            raise missing("lease", asked.lease)
        body = {
            "before": await flows.before(stored.job),
            "results": await flows.results_before(stored.job),
        }
        return self._desk.reply(body)

    async def gone(self, call: Call) -> Reply:
        """A worker has ended, says whoever watched over it: what it still holds is lost at once.

        One that has lapsed was stopped because we were away, which costs its jobs nothing.
        """
        asked = read_body(call, _Gone)
        name = need_text("worker_id", asked.worker_id)
        key = (call.caller.tenant, name)
        await self._workers.need_own(call, key)
        lost = await self._workers.bury(key, has_lapsed=asked.lapsed)
        return self._desk.reply({"worker_id": name, "jobs_lost": lost})

    # --- reports --------------------------------------------------------------------------------

    def _need_right(self, call: Call, report: Report, stored: Stored | None) -> None:
        """Refuse all of them for one that could never be: nothing has been done yet."""
        _need_fit(report)
        if stored is not None:
            call.caller.need_queue(stored.job.queue)
            for ask in report.new:
                self._need_follower(call, ask)

    def _whole(self, call: Call, report: Report) -> Report:
        """Jobs that follow and say not whose they are, are of the tenant that the key is for."""
        if not report.new or call.caller.principal.may_enter(""):
            return report
        own = call.caller.tenant
        new = tuple(one if one.tenant else replace(one, tenant=own) for one in report.new)
        return replace(report, new=new)

    def _need_follower(self, call: Call, ask: Ask) -> None:
        if not call.caller.has(Scope.PRODUCE):
            raise Problem(403, "forbidden", "this key may not enqueue what follows")
        call.caller.need_queue(ask.queue)
        named = (ask.id, ask.rerun_of, ask.workflow, ask.step, ask.delivery)
        call.caller.need_tenant(ask.tenant)
        if any(named) or is_keyed(ask):
            raise invalid("what follows a job has neither an id nor a key of its own", field="new")
        limits.need_job(ask)

    async def _carried_out(
        self, told: Sequence[tuple[Report, Stored]], worker: str
    ) -> list[Answered]:
        """In one commit, but for what is no move: that is written beside it."""
        engine, now = self._desk.engine, self._desk.now()
        await self._note(told)
        moving = [(one, stored) for one, stored in told if one.event is not None]
        changes = [change_of(one, stored, worker, now) for one, stored in moving]
        answers = await engine.carry_out(changes) if changes else []
        said = [
            await self._settled(answer, one, worker, stored)
            for answer, (one, stored) in zip(answers, moving, strict=True)
        ]
        left = iter(said)
        return [Answered() if one.event is None else next(left) for one, _ in told]

    async def _settled(
        self, answer: j.Answer, report: Report, worker: str, stored: Stored
    ) -> Answered:
        """What was refused because it was done before is answered as it was then."""
        if not isinstance(answer, Refusal):
            return answered(answer)
        store, key = self._desk.engine.store, key_of(stored.job)
        event = before_it(report, worker, await store.history(key))
        [now] = await store.get([key])
        if event is None or now is None:
            return answered(answer)
        return Answered(accepted=j.Accepted(now.job, (event,)))

    async def _note(self, told: Sequence[tuple[Report, Stored]]) -> None:
        store, now = self._desk.engine.store, self._desk.now()
        notes = [
            (key_of(stored.job), one.lease, replace(one.note, at=now))
            for one, stored in told
            if one.note is not None
        ]
        if notes:
            await store.note(notes, now=now)
        lines = [
            (key_of(stored.job), line)
            for one, stored in told
            if one.event is None
            for line in one.lines
        ]
        if lines:
            await store.append_logs(lines)


def _need_fit(report: Report) -> None:
    """Everything in it has a limit."""
    if report.event not in (None, j.JobEvent.TIME_OUT, *EVENTS):
        raise invalid(f"{report.event} is not for a worker to say", field="event")
    for what, text in (("result", report.result), ("checkpoint", report.checkpoint)):
        if text is not None:
            limits.need_result(what, text)
    limits.need_followers(len(report.new))
    if len(report.lines) > LINES_MAX:
        raise invalid(f"at most {LINES_MAX} lines go with a report", field="lines")
    for line in report.lines:
        _need_short("lines", line.text, limits.LINE_CHARS_MAX)
    if report.failure is not None:
        for name in ("code", "type", "message", "details", "backtrace"):
            _need_short(name, getattr(report.failure, name), _TEXT_MAX)


def _need_short(name: str, text: str | None, most: int) -> None:
    if text is not None and len(text) > most:
        raise invalid(f"{name} has at most {most} characters", field=name)


def _unknown(report: Report) -> Answered:
    why, event = "there is no such job", report.event or "note"
    return Answered(refusal=j.JOB.refusal("unknown_job", None, event, Actor.WORKER, detail=why))
