"""What every operation of this surface needs: whose records, which of them, and how to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from detent.engine import keeping as flows
from detent.engine.paging import job_pages
from detent.engine.piecemeal import piecemeal
from detent.lifecycle.profile import ProfileName
from detent.lifecycle.workflow import Step, Tally
from detent.stores.api import Key, Record, Stored, key_of
from detent.stores.select import Filter, Page
from detent.surfaces.http.desk import HttpDesk, json_reply
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.jobnik.checking import Rule, id_of, integer
from detent.surfaces.jobnik.faults import missing
from detent.surfaces.jobnik.keeping import KIND, StageKept, job_kept, queue_of, stage_kept, stage_of
from detent.surfaces.jobnik.showing import FoundJob, stage_shown, task_shown

PAGE: Final = 500
TRIES_MAX: Final = 100
_PAGE_DEFAULT: Final = 10
PAGES: Final[dict[str, Rule]] = {"page": integer(1, 10**9), "page_size": integer(1, 100)}
"""What those who want a list in pages say behind the path."""


class FoundStage(msgspec.Struct, frozen=True):
    """A stage: its step in the job it belongs to, and what is kept of it."""

    job: FoundJob
    step: Step
    record: Record
    kept: StageKept

    @property
    def id(self) -> str:
        """Its id."""
        return self.record.id

    @property
    def key(self) -> Key:
        """What its job is found by."""
        return key_of(self.job.flow.workflow)

    @property
    def tally(self) -> Tally:
        """How many of its tasks are where."""
        return self.job.flow.tally(self.step.id)


class Desk(HttpDesk):
    """Who asks for what in the words of this surface, and how it is answered."""

    reply = staticmethod(json_reply)

    # --- jobs -----------------------------------------------------------------------------------

    async def job(self, call: Call, *, whole: bool = False) -> FoundJob:
        """The job that the path names; a key must be for one of its stages, or for the `whole`."""
        found = await self.job_of(call, id_of(call, "jobId"))
        if call.caller.is_bound:
            queues = [queue_of(one.kept.type) for one in await self.stages_in(found)]
            if whole or not any(map(call.caller.may_use, queues)):
                call.caller.need_queue(*queues)
        return found

    async def job_of(self, call: Call, name: str) -> FoundJob:
        """The job of that id; what was deleted is not there any more."""
        [found] = await self.jobs_of([(call.caller.tenant, name)])
        if found is None:
            raise missing("JOB")
        return found

    async def jobs_of(self, keys: Sequence[Key]) -> list[FoundJob | None]:
        """The jobs of these keys, in order; a workflow that is none of Jobnik's is not there."""
        store = self.engine.store
        found = await store.flows(keys)
        records = await store.record([(flows.KIND, *key) for key in keys])
        jobs: list[FoundJob | None] = []
        for flow, record in zip(found, records, strict=True):
            beside = None if record is None else flows.read(record)
            kept = None if beside is None else job_kept(beside.meta)
            if flow is None or beside is None or kept is None:
                jobs.append(None)
            else:
                jobs.append(FoundJob(flow, beside.name, kept))
        return jobs

    async def all_jobs(self, tenant: str) -> list[FoundJob]:
        """All of them, oldest first."""
        found: list[FoundJob] = []
        after: Key | None = None
        while page := await self.engine.store.find_workflows(tenant, None, Page(PAGE, after)):
            jobs = await self.jobs_of([key_of(one) for one in page])
            found += [one for one in jobs if one is not None]
            after = key_of(page[-1])
        return found[::-1]

    # --- stages ---------------------------------------------------------------------------------

    async def stage(self, call: Call) -> FoundStage:
        """The stage that the path names."""
        found = await self.stage_of(call, id_of(call, "stageId"))
        if found is None:
            raise missing("STAGE")
        call.caller.need_queue(queue_of(found.kept.type))
        return found

    async def stage_of(self, call: Call, name: str) -> FoundStage | None:
        """The stage of that id."""
        tenant = call.caller.tenant
        [record] = await self.engine.store.record([(KIND, tenant, name)])
        if record is None:
            return None
        kept = stage_kept(record)
        [job] = await self.jobs_of([(tenant, kept.job)])
        step = None if job is None else job.flow.steps.get(kept.step(name))
        return None if job is None or step is None else FoundStage(job, step, record, kept)

    async def stages_in(self, *jobs: FoundJob) -> list[FoundStage]:
        """The stages of these jobs, job by job and in their order."""
        steps = [(job, step) for job in jobs for step in job.flow.steps.values()]
        found: list[FoundStage] = []
        for first in range(0, len(steps), PAGE):
            some = steps[first : first + PAGE]
            keys = [(KIND, step.tenant, stage_of(step)) for _, step in some]
            records = await self.engine.store.record(keys)
            found += [
                FoundStage(job, step, record, stage_kept(record))
                for (job, step), record in zip(some, records, strict=True)
                if record is not None
            ]
        return found

    def seen_by(self, call: Call, stages: Iterable[FoundStage]) -> list[FoundStage]:
        """Those of the types that the key is for."""
        return [one for one in stages if call.caller.may_use(queue_of(one.kept.type))]

    async def stages_shown(
        self, stages: Iterable[FoundStage], *, with_tasks: bool = False
    ) -> list[dict[str, Any]]:
        """Stages as Jobnik writes them."""
        shown = []
        for one in stages:
            told = stage_shown(one.step, one.tally, one.kept)
            if with_tasks:
                told["tasks"] = await piecemeal(task_shown, await self.tasks_of(one))
            shown.append(told)
        return shown

    # --- tasks ----------------------------------------------------------------------------------

    async def task(self, call: Call) -> Stored:
        """The task that the path names."""
        key = (call.caller.tenant, id_of(call, "taskId"))
        [found] = await self.engine.store.get([key])
        if found is None or not _is_task(found):
            raise missing("TASK")
        call.caller.need_queue(found.job.queue)
        return found

    async def tasks_of(self, stage: FoundStage) -> list[Stored]:
        """The tasks of a stage, oldest first."""
        tenant, workflow = stage.key
        return await self.tasks(Filter(tenant=tenant, workflow=workflow, step=stage.step.id))

    async def tasks(self, chosen: Filter) -> list[Stored]:
        """The tasks that fit, oldest first."""
        chosen = replace(chosen, profile=ProfileName.JOBNIK.value)
        found: list[Stored] = []
        async for page in job_pages(self.engine.store, chosen, PAGE):
            found += [one for one in page if _is_task(one)]
        return found[::-1]

    # --- replies --------------------------------------------------------------------------------

    def done(self, what: str) -> Reply:
        """Success where there is nothing else to tell."""
        return self.reply({"code": f"{what}_SUCCESSFULLY"})

    async def listed(
        self, query: dict[str, Any], found: Sequence[Any], show: Callable[[Any], Any]
    ) -> Reply:
        """Both generations of lists: everything at once, or a page of it."""
        items = await piecemeal(show, self.paged(query, found))
        is_paged = self._is_paged(query)
        return self.reply({"total": len(found), "items": items} if is_paged else items)

    def paged(self, query: dict[str, Any], found: Sequence[Any]) -> Sequence[Any]:
        """The page that was asked for, or all of it."""
        if not self._is_paged(query):
            return found
        size = query.get("page_size", _PAGE_DEFAULT)
        first = (query.get("page", 1) - 1) * size
        return found[first : first + size]

    def _is_paged(self, query: dict[str, Any]) -> bool:
        return self.settings.jobnik_pages or bool(query.keys() & PAGES.keys())


def _is_task(stored: Stored) -> bool:
    job = stored.job
    is_ours = job.profile == ProfileName.JOBNIK and job.step is not None
    return is_ours and job.erased_at is None
