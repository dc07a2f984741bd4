"""What operators ask for: everything there is, page by page, and verbs for many jobs at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from detent.engine.commands import Change
from detent.engine.enqueueing import Clash, Enqueued
from detent.engine.verbs import Verb
from detent.lifecycle import job as j
from detent.lifecycle.job.table import ENDED
from detent.lifecycle.machine import Refusal
from detent.stores.api import Stored, key_of
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.choosing import STATES, Chosen, confirmed, fitting, paged
from detent.surfaces.ojs.dead_letters import Letters
from detent.surfaces.ojs.desk import Desk, read_body
from detent.surfaces.ojs.envelope import shown
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.queues import Queues
from detent.surfaces.ojs.wire import instant, told
from detent.surfaces.ojs.workers import SILENT_US, Worker, Workers


class _Purge(msgspec.Struct, frozen=True):
    states: list[str] = []
    older_than: str | None = None
    confirm: bool = False


class Admin:
    """The operations of operators."""

    def __init__(self, desk: Desk, queues: Queues, letters: Letters, workers: Workers) -> None:
        self._desk = desk
        self._queues = queues
        self._letters = letters
        self._workers = workers

    # --- looking --------------------------------------------------------------------------------

    async def stats(self, call: Call) -> Reply:
        """Numbers over everything."""
        rows = await self._queues.rows(call)
        jobs: Counter[str] = Counter(dict.fromkeys(STATES, 0))
        for row in rows:
            jobs.update(row.counts)
        workers = await self._workers.all(call.caller.tenant)
        uptime = (time.time_ns() // 1_000 - self._desk.started_at) // 1_000_000
        late = await self._queues.figures.late(call.caller.tenant)
        body: dict[str, Any] = {
            "queues": len(rows),
            "workers": len(workers),
            "jobs": jobs,
            "uptime_seconds": uptime,
            "throughput": late.throughput(),
        }
        return self._desk.reply(body)

    async def queues(self, call: Call) -> Reply:
        """All queues with their numbers."""
        body = paged(call, await self._queues.rows(call))
        items = [await self._queues.item(call, row) for row in body["items"]]
        return self._desk.reply({**body, "items": items})

    async def pause(self, call: Call) -> Reply:
        """Pause a queue."""
        name, at = await self._queues.turn(call, is_paused=True)
        return self._desk.reply({"name": name, "paused": True, "paused_at": at})

    async def resume(self, call: Call) -> Reply:
        """Resume a queue."""
        name, at = await self._queues.turn(call, is_paused=False)
        return self._desk.reply({"name": name, "paused": False, "resumed_at": at})

    async def jobs(self, call: Call) -> Reply:
        """Jobs that fit, newest first."""
        query = call.query
        kind = query.get("type")
        prefix = kind[:-1] if kind and kind.endswith("*") else None
        chosen = Chosen(query.get("queue"), query.get("state"), None if prefix else kind)
        since, until = (
            instant(name, query[name], self._desk.now())[0] if query.get(name) else None
            for name in ("since", "until")
        )
        found = [
            one
            for one in await fitting(self._desk, call, chosen)
            if (prefix is None or one.body.type.startswith(prefix))
            and (since is None or one.job.created_at >= since)
            and (until is None or one.job.created_at <= until)
        ]
        if query.get("order") == "asc":
            found.reverse()
        body = paged(call, found)
        return self._desk.reply({**body, "items": await self._desk.shown(body["items"])})

    async def job(self, call: Call) -> Reply:
        """One job, without a wrapper."""
        name = call.param("id")
        job = shown(await self._desk.stored(call, name), name)
        times = {name: value for name, value in job.items() if name.endswith("_at")}
        return self._desk.reply({**job, "retry_policy": job["retry"], "metadata": times})

    async def workers(self, call: Call) -> Reply:
        """All workers that are not dead."""
        now = self._desk.now()
        found = await self._workers.all(call.caller.tenant)
        states = Counter(_standing(one, now) for one in found)
        summary = {
            "total": len(found),
            **{name: states[name] for name in ("running", "quiet", "stale")},
        }
        body = paged(call, [_worker_shown(one) for one in found])
        return self._desk.reply({**body, "summary": summary})

    async def tenant_stats(self, call: Call) -> Reply:
        """How many jobs a tenant has."""
        name = call.param("id")
        call.caller.need_tenant(name)
        tenant = self._desk.caller_rules.tenant(name)
        total = sum(one.count for one in await self._desk.engine.store.counts(tenant))
        return self._desk.reply({"tenant_id": name, "total_jobs": total})

    # --- acting on one --------------------------------------------------------------------------

    async def retry(self, call: Call) -> Reply:
        """Run an ended job again under its id."""
        name = call.param("id")
        stored = await self._desk.stored(call, name)
        if stored.job.state not in ("discarded", "cancelled"):
            raise Problem(409, "conflict", "only discarded and cancelled jobs are run again")
        return self._desk.reply({"job": shown(await self._letters.rerun(call, name), name)})

    async def quiet(self, call: Call) -> Reply:
        """Tell a worker to take no more jobs."""
        return await self._direct(call, "quiet")

    async def wake(self, call: Call) -> Reply:
        """Tell a worker that was quieted to go on."""
        return await self._direct(call, "running")

    async def terminate(self, call: Call) -> Reply:
        """Tell a worker to finish what it does, and to end."""
        return await self._direct(call, "terminate")

    async def _direct(self, call: Call, directive: str) -> Reply:
        key = (call.caller.tenant, call.param("id"))
        if await self._workers.get(key) is None:
            raise missing("worker", key[1])
        await self._workers.direct(key, directive)
        return self._desk.reply({"id": key[1], "state": directive})

    async def remove_worker(self, call: Call) -> Reply:
        """Forget a worker."""
        key = (call.caller.tenant, call.param("id"))
        if await self._workers.get(key) is None:
            raise missing("worker", key[1])
        await self._workers.remove(key)
        return Reply(204)

    async def letters(self, call: Call) -> Reply:
        """Dead letters, page by page."""
        found = await self._letters.listed_all(call)
        body = paged(call, found)
        items = await self._letters.shown(call, body["items"])
        return self._desk.reply({**body, "items": items})

    async def delete_letter(self, call: Call) -> Reply:
        """Erase a dead letter."""
        await self._letters.delete(call)
        return Reply(204)

    # --- acting on many -------------------------------------------------------------------------

    async def cancel_many(self, call: Call) -> Reply:
        """Call off all jobs that fit."""
        found = [one for one in await confirmed(self._desk, call) if one.job.state not in ENDED]
        return self._desk.reply(await self._applied(call, "cancel", j.Cancel(), found))

    async def retry_many(self, call: Call) -> Reply:
        """Run all jobs again that fit and have ended without success."""
        over = ("discarded", "cancelled")
        found = [one for one in await confirmed(self._desk, call) if one.job.state in over]
        names = await self._desk.engine.aliases.shown([one.job for one in found])
        done, errors = 0, list[dict[str, str]]()
        for name in dict.fromkeys(names):
            try:
                await self._letters.rerun(call, name)
                done += 1
            except Problem as problem:
                errors.append({"job_id": name, "code": problem.code, "message": problem.message})
        told_of = {"action": "retry", "matched": len(found), "succeeded": done}
        return self._desk.reply({**told_of, "failed": len(errors), "errors": errors[:10]})

    async def delete_many(self, call: Call) -> Reply:
        """Erase all jobs that fit and have ended."""
        found = [one for one in await confirmed(self._desk, call) if one.job.state in ENDED]
        done = await self._erased(call, found)
        told_of = {"action": "delete", "matched": len(found), "succeeded": done, "failed": 0}
        return self._desk.reply({**told_of, "errors": []})

    async def purge(self, call: Call) -> Reply:
        """Erase the ended jobs of a queue, and call off those that wait, by their states."""
        asked, queue = read_body(call, _Purge), call.param("name")
        if not asked.confirm or not asked.states:
            raise invalid("states and confirm: true are needed", field="confirm")
        until = None
        if asked.older_than is not None:
            until = instant("older_than", asked.older_than, self._desk.now())[0]
        purged = 0
        for state in asked.states:
            some = [
                one
                for one in await fitting(self._desk, call, Chosen(queue, state))
                if until is None or one.job.created_at < until
            ]
            live = [one for one in some if one.job.state not in ENDED]
            await self._applied(call, "cancel", j.Cancel(), live)
            over = await self._desk.engine.store.get([key_of(one.job) for one in some])
            purged += await self._erased(call, [one for one in over if one is not None])
        return self._desk.reply({"purged_count": purged, "states": asked.states})

    # --- inside ---------------------------------------------------------------------------------

    async def _applied(
        self, call: Call, action: str, verb: Verb, found: Sequence[Stored]
    ) -> dict[str, Any]:
        keys = [key_of(one.job) for one in found]
        answers = await self._desk.engine.operators.apply(verb, keys, call.caller.actor)
        bad = [
            (key, one)
            for key, one in zip(keys, answers, strict=True)
            if isinstance(one, Refusal | Clash) and not isinstance(one, Enqueued)
        ]
        errors = [
            {"job_id": key[1], "message": one.message}
            for key, one in bad[:10]
            if isinstance(one, Refusal)
        ]
        done = len(keys) - len(bad)
        told_of = {"action": action, "matched": len(keys), "succeeded": done}
        return {**told_of, "failed": len(bad), "errors": errors}

    async def _erased(self, call: Call, found: Sequence[Stored]) -> int:
        by = call.caller.actor
        changes = [Change(key_of(one.job), j.Erase(), by) for one in found]
        answers = await self._desk.engine.carry_out(changes)
        return sum(not isinstance(one, Refusal) for one in answers)


def _standing(worker: Worker, now: int) -> str:
    if now - worker.last_at > SILENT_US:
        return "stale"
    return "quiet" if worker.is_quiet else "running"


def _worker_shown(worker: Worker) -> dict[str, Any]:
    told_of = {
        "id": worker.id,
        "hostname": worker.hostname,
        "pid": worker.pid,
        "state": worker.directive if worker.directive != "running" else worker.state,
        "queues": worker.queues,
        "concurrency": worker.concurrency,
        "active_jobs": worker.active,
        "started_at": told(worker.started_at),
        "last_heartbeat_at": told(worker.last_at),
        "version": worker.version,
        "metadata": worker.labels,
    }
    return {name: value for name, value in told_of.items() if value is not None}
