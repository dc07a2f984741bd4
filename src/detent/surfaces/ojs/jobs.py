"""Jobs from the outside: pushed, read, cancelled, activated, and asked for their results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from detent.engine.asks import Ask, OnConflict, body_of
from detent.engine.commands import Change
from detent.engine.enqueueing import Clash, Enqueued, Refused
from detent.engine.entering import OUTRUN, Entry
from detent.lifecycle import job as j
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import ENDED
from detent.lifecycle.machine import Refusal
from detent.stores.api import RECORDS_MAX, Idempotency, Key, Stored, key_of
from detent.surfaces.http.exchange import Call, Reply, digest_of
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.admission import Admission
from detent.surfaces.ojs.desk import Desk, number_in, page_of, pages, read_body
from detent.surfaces.ojs.envelope import shown
from detent.surfaces.ojs.faults import conflict, duplicate, invalid, of_refusal
from detent.surfaces.ojs.moulding import Moulding
from detent.surfaces.ojs.pressure import Headers
from detent.surfaces.ojs.reading import Wanted, object_of, objects_of
from detent.surfaces.ojs.wire import told

_WAIT_S: Final = 30
_KEY_MAX: Final = 256
_DAY_US: Final = 86_400_000_000
_LOOK_S: Final = 0.1


class _Patch(msgspec.Struct, frozen=True):
    priority: int | None = None


class _Bulk(msgspec.Struct, frozen=True):
    jobs: Raw | UnsetType = msgspec.UNSET
    atomicity: str = "partial"
    idempotency_key: str | None = None


class _Ids(msgspec.Struct, frozen=True):
    ids: list[str] | None = None


class Jobs:
    """The operations on jobs."""

    def __init__(self, desk: Desk, admission: Admission) -> None:
        self._desk = desk
        self._admission = admission
        self.moulding = Moulding(desk, admission)

    # --- new jobs -------------------------------------------------------------------------------

    async def push(self, call: Call) -> Reply:
        """A new job; 200 when a unique one was there already."""
        sent = self.moulding.sent(call)
        shape = None if sent is None else self.moulding.shape(call, sent)
        if sent is not None and shape is not None:
            enqueueing = self._desk.engine.enqueueing
            return shape.reply(await enqueueing.press(shape.mould, sent.payload))
        read = self._desk.traced(call, self._desk.reader(call).read(call.body))
        [wanted] = await self._admission.completed([read])
        enqueued, pressure = await self._let_in(call, wanted)
        if not enqueued.is_new:
            [job] = await self._envelopes([enqueued.job])
            return self._desk.reply({"job": job, "deduplicated": True})
        if sent is not None:
            self.moulding.learn(call, sent, wanted)
        job = shown(Stored(enqueued.job, body_of(wanted.ask)), enqueued.job.id)
        headers = (("location", f"/ojs/v1/jobs/{enqueued.job.id}"), *pressure)
        return self._desk.reply({"job": job}, 201, headers)

    async def push_many(self, call: Call) -> Reply:
        """Many new jobs: all of them or none."""
        given = objects_of("jobs", object_of(call.body).get("jobs"), RECORDS_MAX)
        wanted = await self._read_all(call, given)
        jobs, pressure = await self._let_in_together(call, wanted)
        return self._desk.reply({"jobs": jobs, "count": len(jobs)}, 201, pressure)

    async def push_bulk(self, call: Call) -> Reply:
        """Many new jobs, each with an answer of its own, or all of them or none."""
        bulk = read_body(call, _Bulk)
        given = _items(bulk)
        if bulk.atomicity == "atomic":
            jobs = await self._atomic(call, given)
            items = [{"index": i, "status": "created", "job": job} for i, job in enumerate(jobs)]
        elif bulk.atomicity == "partial":
            items = [
                await self._item(call, index, one, bulk.idempotency_key)
                for index, one in enumerate(given)
            ]
        else:
            raise invalid("atomicity must be partial or atomic", field="atomicity")
        failed = sum(item["status"] == "failed" for item in items)
        told_of = {"total": len(items), "succeeded": len(items) - failed, "failed": failed}
        status = 200 if not failed else 422 if failed == len(items) else 207
        return self._desk.reply({**told_of, "items": items}, status)

    async def _atomic(self, call: Call, given: Sequence[dict[str, Raw]]) -> list[dict[str, Any]]:
        """All of them; one that cannot be makes none of them, and the reply says which."""
        try:
            wanted = await self._read_all(call, given)
            return (await self._let_in_together(call, wanted))[0]
        except Problem as problem:
            if problem.status in (400, 409):
                problem.status = 422
            raise

    async def _item(
        self, call: Call, index: int, one: dict[str, Raw], key: str | None
    ) -> dict[str, Any]:
        try:
            read = self._desk.traced(call, self._desk.reader(call).job(one))
            [wanted] = await self._admission.completed([read])
            if key is not None:
                wanted = replace(wanted, ask=self._once(wanted.ask, index, key))
            enqueued, _ = await self._let_in(call, wanted)
        except Problem as problem:
            told_of = {"code": problem.code, "message": problem.message}
            return {"index": index, "status": "failed", "error": told_of}
        [job] = await self._envelopes([enqueued.job])
        status = "created" if enqueued.is_new else "duplicate"
        return {"index": index, "status": status, "job": job}

    def _once(self, ask: Ask, index: int, key: str) -> Ask:
        """The same as one request: sent again within a day, it is answered by the job of then."""
        if not 1 <= len(key) <= _KEY_MAX:
            raise invalid(
                f"idempotency_key has 1 to {_KEY_MAX} characters", field="idempotency_key"
            )
        name, told_of = digest_of(f"{index} {key}"), digest_of(f"{ask.type} {ask.payload}")
        return replace(ask, idempotency=Idempotency(name, told_of, self._desk.now() + _DAY_US))

    async def _read_all(self, call: Call, given: Sequence[dict[str, Raw]]) -> list[Wanted]:
        reader, read = self._desk.reader(call), list[Wanted]()
        for index, one in enumerate(given):
            try:
                wanted = self._desk.traced(call, reader.job(one))
                read += await self._admission.completed([wanted])
            except Problem as problem:
                problem.details["index"] = index
                raise
        return read

    async def _let_in(self, call: Call, wanted: Wanted) -> tuple[Enqueued, Headers]:
        enter = partial(self._pushed, call, wanted)
        return await self._admission.let_in_one(call, wanted, enter)

    async def _pushed(self, call: Call, wanted: Wanted, entry: Entry | None) -> Enqueued | Refusal:
        answer = await self._enqueued(call, wanted.ask, entry)
        if isinstance(answer, Clash) and wanted.keeps_schedule and wanted.ask.unique is not None:
            # The new job takes the place of the old one, and its time.
            unique = replace(wanted.ask.unique, on_conflict=OnConflict.REPLACE)
            run_at = answer.by.run_at or wanted.ask.run_at
            ask = replace(wanted.ask, unique=unique, run_at=run_at)
            answer = await self._enqueued(call, ask, entry)
        if isinstance(answer, Clash):
            policy = wanted.ask.unique
            raise duplicate(answer, None if policy is None else policy.fingerprint)
        if isinstance(answer, Refusal) and answer is not OUTRUN:
            raise of_refusal(answer)
        return answer

    async def _enqueued(
        self, call: Call, ask: Ask, entry: Entry | None
    ) -> Enqueued | Clash | Refusal:
        engine, by = self._desk.engine, call.caller.actor
        return await engine.enter(ask, by, entry) if entry else (await engine.enqueue([ask], by))[0]

    async def _let_in_together(
        self, call: Call, wanted: Sequence[Wanted]
    ) -> tuple[list[dict[str, Any]], Headers]:
        enter = partial(self._together, call, wanted)
        return await self._admission.let_in(call, wanted, enter)

    async def _together(
        self, call: Call, wanted: Sequence[Wanted], entry: Entry | None
    ) -> list[dict[str, Any]] | Refusal:
        asks = [one.ask for one in wanted]
        made = await self._desk.engine.enqueue_together(asks, call.caller.actor, entry)
        if isinstance(made, Refused):
            if made.why is OUTRUN:
                return OUTRUN
            problem = duplicate(made.why) if isinstance(made.why, Clash) else of_refusal(made.why)
            problem.details["index"] = made.index
            raise problem
        return [
            shown(Stored(one.job, body_of(ask)), one.job.id)
            for one, ask in zip(made, asks, strict=True)
        ]

    async def _envelopes(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        found = await self._desk.engine.store.get([key_of(job) for job in jobs])
        return await self._desk.shown([one for one in found if one is not None])

    # --- one job --------------------------------------------------------------------------------

    async def get(self, call: Call) -> Reply:
        """A job as it is."""
        name = call.param("id")
        return self._desk.reply({"job": shown(await self._desk.stored(call, name), name)})

    async def cancel(self, call: Call) -> Reply:
        """Call a job off; one that runs is ended or asked to stop, as its profile has it."""
        stored = await self._desk.stored(call, call.param("id"))
        return await self._moved(call, stored, j.Cancel(), "cancel")

    async def activate(self, call: Call) -> Reply:
        """Let a job that was staged be fetched."""
        name = call.param("id")
        stored = await self._desk.stored(call, name)
        if not stored.job.held:
            raise conflict(stored.job, name, "activate", "pending")
        return await self._moved(call, stored, j.Activate(), "activate")

    async def patch(self, call: Call) -> Reply:
        """Give a job that waits another priority."""
        name, priority = call.param("id"), read_body(call, _Patch).priority
        if priority is None or not -100 <= priority <= 100:
            raise invalid("priority must be a number from -100 to 100", field="priority")
        stored = await self._desk.stored(call, name)
        if stored.job.state not in ("available", "scheduled"):
            raise conflict(stored.job, name, "change", "available")
        return await self._moved(call, stored, j.Reprioritise(priority), "change")

    async def _moved(self, call: Call, stored: Stored, command: j.Command, asked: str) -> Reply:
        change, name = Change(key_of(stored.job), command, call.caller.actor), call.param("id")
        [answer] = await self._desk.engine.carry_out([change])
        if isinstance(answer, Refusal):
            problem = conflict(stored.job, name, asked, "a live state")
            if answer.state is not None:
                problem.details["current_state"] = answer.state
            problem.details["refusal"] = answer.code
            raise problem
        return self._desk.reply({"job": shown(replace(stored, job=answer.job), name)})

    # --- results --------------------------------------------------------------------------------

    async def result(self, call: Call) -> Reply:
        """What a job came to; with `wait=true` as soon as it has."""
        name, query = call.param("id"), call.query
        patience = number_in(query, "timeout", _WAIT_S, _WAIT_S, least=0)
        until = time.monotonic() + (patience if query.get("wait") == "true" else 0)
        stored = await self._desk.stored(call, name)
        while stored.job.state not in ENDED and time.monotonic() < until:
            if not await self._desk.service.pause(_LOOK_S):
                break
            stored = await self._desk.stored(call, name)
        if stored.job.state not in ENDED:
            why = f"the job has not ended; it is {stored.job.state}"
            raise Problem(408, "timeout", why, retryable=True, job_id=name)
        if stored.job.state == "completed" and stored.result is None:
            await self._need_kept(stored, name)
        return self._desk.reply(_result(shown(stored, name)))

    async def _need_kept(self, stored: Stored, name: str) -> None:
        """Tell a job that came to nothing from one whose result was there, and is not kept."""
        last = next(
            one
            for one in reversed(await self._desk.engine.store.history(key_of(stored.job)))
            if one.target is not None
        )
        if last.digest is not None:
            why = "the result is not kept any more; result_ttl of a job says for how long it is"
            raise Problem(410, "gone", why, job_id=name)

    async def results(self, call: Call) -> Reply:
        """What many jobs came to."""
        ids = read_body(call, _Ids).ids
        if not ids or len(ids) > RECORDS_MAX:
            raise invalid(f"ids is needed: 1 to {RECORDS_MAX} of them", field="ids")
        keys: list[Key] = [(call.caller.tenant, name) for name in ids]
        found = await self._desk.find(keys)
        told_of = [
            _result(shown(one, name))
            for name, one in zip(ids, found, strict=True)
            if one is not None and one.job.erased_at is None and call.caller.may_use(one.job.queue)
        ]
        return self._desk.reply({"results": told_of})

    # --- history --------------------------------------------------------------------------------

    async def history(self, call: Call) -> Reply:
        """Every move that the job has made."""
        name = call.param("id")
        stored = await self._desk.stored(call, name)
        limit, offset = page_of(call)
        events = await self._desk.engine.store.history(key_of(stored.job))
        told_of = [
            {
                "id": f"{name}.{event.version}",
                "job_id": name,
                "event_type": event.name,
                "timestamp": told(event.at),
                "actor": f"{event.actor} {event.actor_id}".strip(),
                "data": {
                    key: value
                    for key, value in (
                        ("from", event.source),
                        ("to", event.target),
                        ("cause", event.cause),
                        ("code", event.code),
                        ("reason", event.reason),
                    )
                    if value is not None
                },
            }
            for event in events[offset : offset + limit]
        ]
        about = pages(len(events), limit, offset)
        return self._desk.reply({"events": told_of, "pagination": about})

    async def lineage(self, call: Call) -> Reply:
        """Which job this one runs again, and the workflow it belongs to."""
        name = call.param("id")
        job = (await self._desk.stored(call, name)).job
        told_of = {"job_id": name, "rerun_of": job.rerun_of, "workflow_id": job.workflow}
        return self._desk.reply({k: v for k, v in told_of.items() if v is not None})


def _items(bulk: _Bulk) -> list[dict[str, Raw]]:
    raw = None if isinstance(bulk.jobs, UnsetType) else bulk.jobs
    try:
        return objects_of("jobs", raw, RECORDS_MAX)
    except Problem as problem:
        if problem.code == "batch_too_large":
            problem.code = "BATCH_SIZE_EXCEEDED"
        raise


def _result(job: dict[str, Any]) -> dict[str, Any]:
    names = ("state", "result", "error", "completed_at", "cancelled_at", "discarded_at")
    return {"job_id": job["id"], **{name: job[name] for name in names if name in job}}
