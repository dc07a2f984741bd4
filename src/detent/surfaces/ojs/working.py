"""What workers do with jobs: fetch them, and tell how they went."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from detent.engine.commands import Beside, Change
from detent.engine.keyless import opened_here
from detent.engine.limits import need_result
from detent.engine.secrets import Owner
from detent.errors import SecretError
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.views.facts import counted_attempt
from detent.stores.api import Claimed, Fair, Key, Stored, Want, key_of
from detent.surfaces.http.exchange import Call, Reply, digest_of
from detent.surfaces.ojs.desk import CLAIMABLE, Desk, read_body
from detent.surfaces.ojs.envelope import ANONYMOUS, kept_of, shown
from detent.surfaces.ojs.faults import conflict, invalid, missing
from detent.surfaces.ojs.flows import Flows
from detent.surfaces.ojs.polling import polled
from detent.surfaces.ojs.progress import checkpoint_of
from detent.surfaces.ojs.reading import need_queue, need_text
from detent.surfaces.ojs.reports import (
    Ack,
    Error,
    Nack,
    Report,
    delay_of,
    failure_of,
    flat,
    info_of,
    name_of,
    refused,
    text_of,
)
from detent.surfaces.ojs.system import System
from detent.surfaces.ojs.wire import span_ms
from detent.surfaces.ojs.workers import Workers

COUNT_MAX: Final = 100
"""Jobs in one fetch."""
_QUEUES_MAX: Final = 100
_KNOWN_MAX: Final = 5_000
_KNOWN_CHARS_MAX: Final = 2_000
_DIRECTIVE = "test_directive"


class _Weighted(msgspec.Struct, frozen=True):
    """A queue that is fetched from before those of less weight."""

    name: str
    weight: float = 1.0


class _Fetch(msgspec.Struct, frozen=True):
    queues: list[str | _Weighted] | None = None
    count: int | None = None
    worker_id: str | None = None
    visibility_timeout_ms: int | None = None
    wait_ms: int | None = None
    types: list[str] | None = None
    fair: Fair | None = None
    pool: str | None = None
    claim_id: str | None = None
    records: bool = False


class Working:
    """Fetch, acknowledge, fail, hand back."""

    def __init__(self, desk: Desk, workers: Workers, flows: Flows, system: System) -> None:
        self._desk = desk
        self._workers = workers
        self._stalls = workers.stalls
        self._system = system
        self._flows = flows
        self._known: dict[Key, Stored] = {}

    # --- fetch ----------------------------------------------------------------------------------

    async def fetch(self, call: Call) -> Reply:
        """Jobs for a worker, if there are any; with `wait_ms` it waits for some."""
        asked = read_body(call, _Fetch)
        if asked.pool is not None:
            pool = await self._system.pool(call, asked.pool)
            asked = replace(asked, queues=asked.queues or [*pool.queues], fair=pool.fair)
        want = self._want(call, asked)
        if want.lease_us is None:
            usual = await self._system.queues.setting.visibility(want.tenant, want.queues)
            want = want if usual is None else replace(want, lease_us=usual)
        if await self._is_quiet(want):
            return self._desk.reply({"jobs": []})
        if asked.records:
            is_named = asked.claim_id is not None
            claimed = await self._desk.engine.claim(want, is_repeatable=is_named)
            return await self._recorded(claimed)
        wait_s = min((asked.wait_ms or 0) / 1_000, self._desk.settings.poll_s_max)
        claimed = await polled(self._desk, call, want, wait_s)
        here = await opened_here(self._desk.engine, claimed.jobs)
        jobs = await self._all_handed_over(here, want)
        if jobs and not self._taken(call, claimed).jobs:
            jobs = []
        told: dict[str, Any] = {"jobs": jobs}
        if jobs:
            told["job"] = jobs[0]
        return self._desk.reply(told)

    def _want(self, call: Call, asked: _Fetch) -> Want:
        if not asked.queues or len(asked.queues) > _QUEUES_MAX:
            raise invalid(f"queues is needed: 1 to {_QUEUES_MAX} names", field="queues")
        queues = _by_weight(asked.queues)
        for queue in queues:
            call.caller.need_queue(need_queue(queue))
        count = 1 if asked.count is None else asked.count
        if count < 1:
            raise invalid("count must be 1 or more", field="count")
        holder = need_text("worker_id", asked.worker_id or ANONYMOUS)
        visibility = asked.visibility_timeout_ms
        name, leases = self._names(call, asked, min(count, COUNT_MAX))
        return Want(
            command_id=name,
            by=By(Actor.WORKER, holder),
            holder=holder,
            leases=leases,
            queues=queues,
            tenant=call.caller.tenant,
            wire=True,
            lease_us=None if visibility is None else span_ms("visibility_timeout_ms", visibility),
            types=None if asked.types is None else tuple(asked.types),
            profiles=CLAIMABLE,
            fair=asked.fair,
        )

    def _names(self, call: Call, asked: _Fetch, count: int) -> tuple[str, tuple[str, ...]]:
        """What the claim and its leases are called: whoever repeats a claim gets the same jobs.

        That is for workers that name their claims, and theirs alone: the names are made of it.
        """
        if asked.claim_id is None:
            name, *leases = self._desk.engine.identity.ids(1 + count)
            return name, tuple(leases)
        owner = (call.caller.tenant, asked.worker_id or ANONYMOUS, asked.claim_id)
        name = digest_of("\0".join(owner))
        return name, tuple(f"{name}.{number}" for number in range(count))

    async def _recorded(self, claimed: Claimed) -> Reply:
        """Jobs as our own workers know them, with their secrets; and what to wait for if none."""
        here = await opened_here(self._desk.engine, claimed.jobs)
        opened = [self._opened(one) for one in here]
        seen = self._desk.seen(claimed.seen)
        told = {"records": opened, "retry_at": claimed.retry_at, "seen": seen}
        return self._desk.reply({**told, "now": self._desk.now()})

    def _opened(self, stored: Stored) -> Stored:
        job, body = stored.job, stored.body
        owner = Owner(job.tenant, job.id, body.type)
        # What is broken goes as it is: it opens nowhere, and the worker reports that.
        with suppress(SecretError):
            payload = self._desk.engine.secrets.opened(body.payload, owner).payload
            body = replace(body, payload=payload)
        return Stored(job, body, checkpoint=stored.checkpoint)

    def _taken(self, call: Call, claimed: Claimed) -> Claimed:
        """The same, if somebody is there to take it; otherwise it goes back."""
        if not claimed.jobs or not call.has_left:
            return claimed
        self._desk.engine.returning.soon(claimed.jobs)
        return Claimed()

    async def _is_quiet(self, want: Want) -> bool:
        if self._desk.service.stopping.is_set():
            return True
        is_named = want.holder != ANONYMOUS
        return is_named and await self._workers.is_quiet((want.tenant, want.holder))

    async def _all_handed_over(self, jobs: Sequence[Stored], want: Want) -> list[dict[str, Any]]:
        """All of them; if one cannot be, or nobody is there to take them, they go back."""
        told: list[dict[str, Any]] = []
        try:
            for one in jobs:
                told.append(await self._handed_over(one, want))  # noqa: PERF401 - it may stop
        except BaseException as error:
            # One that cannot be told would come again at once: it is left to its lease.
            bad = len(told) if isinstance(error, Exception) else None
            rest = [one for at, one in enumerate(jobs) if at != bad]
            self._desk.engine.returning.soon(rest)
            raise
        return told

    async def _handed_over(self, stored: Stored, want: Want) -> dict[str, Any]:
        """The envelope as its worker gets it: with its lease, its secrets, and what came before."""
        engine, job, body = self._desk.engine, stored.job, stored.body
        [name] = await engine.aliases.shown([job])
        kept = kept_of(body.meta)
        if kept.extras.visibility_ms is not None:
            until = (job.claimed_at or 0) + kept.extras.visibility_ms * 1_000
            await engine.store.extend([(job.lease or "", until)], now=self._desk.now())
        await self._stalls.watch(stored)
        payload = engine.secrets.opened(body.payload, Owner(job.tenant, job.id, body.type)).payload
        told = shown(stored, name, payload)
        told["lease"] = job.lease
        checkpoint = checkpoint_of(stored)
        if checkpoint is not None:
            told["checkpoint"] = checkpoint
        if job.workflow is not None:
            told["parent_results"] = results = await self._flows.results_before(job)
            # The official SDK hands its handlers the metadata, and nothing else of this.
            if results:
                meta = msgspec.json.decode(told["meta"], type=dict[str, Raw])
                told["meta"] = {"parent_results": results, **meta}
        if self._desk.settings.test_mode:
            await self._obey(kept.meta, want)
        self._remember((job.tenant, name), stored)
        return told

    async def _obey(self, meta: Raw, want: Want) -> None:
        """In test mode a job may say what its worker is to become."""
        directive = msgspec.json.decode(meta, type=dict[str, Any]).get(_DIRECTIVE)
        if isinstance(directive, str):
            await self._workers.direct((want.tenant, want.holder), directive)

    def _remember(self, key: Key, stored: Stored) -> None:
        """What was handed out from here is mostly reported here: that saves a question."""
        if len(stored.body.payload) + len(stored.body.meta) > _KNOWN_CHARS_MAX:
            return
        if len(self._known) >= _KNOWN_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[key] = stored

    # --- reports --------------------------------------------------------------------------------

    async def ack(self, call: Call) -> Reply:
        """The job has succeeded."""
        report = read_body(call, Ack)
        name = name_of(call, report)
        stored = await self._reported(call, name, report)
        text = None if isinstance(report.result, UnsetType) else text_of(report.result)
        if text is not None:
            need_result("result", text)
        digest = None if text is None else digest_of(text)
        command = j.Complete(**self._fence(call, report, stored.job), digest=digest)
        change = self._change(stored, command, Beside(result=text))
        job = await self._done(change, name, "acknowledge")
        after = replace(stored, job=job, result=text)
        return self._desk.reply({"acknowledged": True, **flat(shown(after, name))})

    async def nack(self, call: Call) -> Reply:
        """The job has failed; with `requeue` it is merely given back."""
        report = read_body(call, Nack)
        name = name_of(call, report)
        if report.error is None and not report.requeue:
            raise invalid("error is needed: an object with code and message", field="error")
        stored = await self._reported(call, name, report)
        fence = self._fence(call, report, stored.job)
        if report.requeue:
            job = await self._done(self._change(stored, j.HandBack(**fence)), name, "requeue")
            return self._desk.reply(flat(shown(replace(stored, job=job), name)))
        error = report.error or Error()
        failure = failure_of(error, stored.job, self._desk.now())
        command = j.Fail(**fence, code=failure.code)
        change = self._change(stored, command, Beside(failure=failure))
        delay_us = delay_of(error, failure.at)
        change = replace(change, error=info_of(error, failure), delay_us=delay_us)
        job = await self._done(change, name, "fail")
        after = replace(stored, job=job, failures=(*stored.failures, failure))
        return self._desk.reply(flat(shown(after, name)))

    async def _reported(self, call: Call, name: str, report: Report) -> Stored:
        key = (call.caller.tenant, name)
        known = self._known.pop(key, None)
        stored = known or await self._desk.stored(call, name)
        call.caller.need_queue(stored.job.queue)
        if report.attempt is not None and report.attempt != counted_attempt(stored.job):
            raise conflict(stored.job, name, "report another attempt of", "active")
        return stored

    def _fence(self, call: Call, report: Report, job: Job) -> dict[str, Any]:
        """The lease that the report names, or whoever it says it comes from."""
        lease = report.lease or call.header("ojs-lease")
        is_named = report.worker_id and job.holder != ANONYMOUS
        return {"lease": lease, "holder": report.worker_id if is_named else None}

    def _change(self, stored: Stored, command: j.Report, beside: Beside = Beside()) -> Change:  # noqa: B008
        by = By(Actor.WORKER, command.holder or stored.job.holder or ANONYMOUS)
        return Change(key_of(stored.job), command, by, beside=beside, known=stored)

    async def _done(self, change: Change, name: str, asked: str) -> Job:
        engine = self._desk.engine
        if isinstance(change.command, j.Complete):
            answer = await engine.complete(change)
        else:
            [answer] = await engine.carry_out([change])
        if not isinstance(answer, Refusal):
            return answer.job
        [now] = await engine.store.get([change.key])
        if now is None:
            raise missing("job", name)
        raise refused(answer, now.job, name, asked)


def _by_weight(queues: Sequence[str | _Weighted]) -> tuple[str, ...]:
    """The names without repetition, the heaviest first; equal ones stay as they were named."""
    weighted = [_Weighted(one) if isinstance(one, str) else one for one in queues]
    weighted.sort(key=lambda one: -one.weight)
    return tuple(dict.fromkeys(one.name for one in weighted))
