"""Workflows and steps against their histories, against each other, and against their jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from detent.engine.verify.finding import Check, Finding
from detent.engine.verify.records import Life, Recorded, judged, life_of, still
from detent.errors import StoreCorrupt
from detent.lifecycle.job import Job
from detent.lifecycle.workflow import Flow, broken_flow
from detent.stores.api import Fed, Key, ReadStore, key_of
from detent.stores.select import Page

_WORKFLOWS, _RECORDS = 100, 500


class Whole(NamedTuple):
    """A workflow as it stands, and the lives of it and of its steps."""

    flow: Flow
    lives: Sequence[Life]


async def wholes(
    store: ReadStore, tenant: str | None
) -> AsyncIterator[tuple[list[Whole], list[Finding]]]:
    """All workflows of the tenant, page by page, and what is wrong with rows of no sense."""
    after: Key | None = None
    while True:
        keys, found = await _page(store, tenant, after)
        if not keys and not found:
            return
        after = keys[-1] if keys else found[-1].key
        read = [await _read(store, key) for key in keys]
        found += [one for one in read if isinstance(one, Finding)]
        yield [one for one in read if isinstance(one, Whole)], found


async def misfits(store: ReadStore, whole: Whole) -> list[Finding]:
    """What is wrong with this workflow, its steps, and what they are to each other."""
    key, flow = key_of(whole.flow.workflow), whole.flow

    async def again(_: Sequence[Key]) -> Mapping[Key, Recorded]:
        [now] = await store.flows([key])
        return {} if now is None else _records(now)

    found = await judged(store, whole.lives, again)
    # It was read at one moment, so nothing excuses that its parts contradict each other.
    if (why := broken_flow(flow)) is not None:
        found.append(Finding(Check.FLOW, why, key, flow.workflow.version))
    return [replace(one, flow=key) for one in found]


async def homeless(store: ReadStore, page: Sequence[Life]) -> list[Finding]:
    """Jobs that name a step which is not there. A workflow goes only after its last job."""
    jobs = [one.record for one in page if isinstance(one.record, Job) and one.record.workflow]
    steps: dict[Key, Collection[str] | None] = {}
    for job in jobs:
        home = (job.tenant, job.workflow or "")
        if home not in steps:
            steps[home] = await _steps(store, home)
    lost = [job for job in jobs if _is_lost(job, steps[job.tenant, job.workflow or ""])]
    there = await still(store, [key_of(job) for job in lost])
    return [_homeless(job) for job in lost if key_of(job) in there]


def _is_lost(job: Job, steps: Collection[str] | None) -> bool:
    return steps is not None and job.step not in steps


def _homeless(job: Job) -> Finding:
    why = f"it names step {job.step} of workflow {job.workflow}, which is not there"
    return Finding(Check.FLOW, why, key_of(job), job.version)


async def _steps(store: ReadStore, key: Key) -> Collection[str] | None:
    """The steps of a workflow; `None` where it cannot be read, which is said elsewhere."""
    try:
        [flow] = await store.flows([key])
    except StoreCorrupt:
        return None
    return flow.steps if flow is not None else ()


async def _page(
    store: ReadStore, tenant: str | None, after: Key | None
) -> tuple[list[Key], list[Finding]]:
    """The next workflows; one that cannot be read is named and stepped over."""
    limit = _WORKFLOWS
    while True:
        try:
            found = await store.find_workflows(tenant, page=Page(limit, after))
            return [key_of(one) for one in found], []
        except StoreCorrupt as error:
            if limit == 1:
                return [], [_unreadable(error, after)]
        limit //= 2


def _unreadable(error: StoreCorrupt, after: Key | None) -> Finding:
    fields = error.fields
    key = (str(fields["tenant"]), str(fields["id"])) if "id" in fields else after
    if key is None or key == after:
        raise error  # It does not say which one it is, so there is no way past it.
    return Finding(Check.ROW, error.message, key, flow=key)


async def _read(store: ReadStore, key: Key) -> Whole | Finding | None:
    try:
        [flow] = await store.flows([key])
        if flow is None:
            return None
        records = _records(flow)
        histories = await _histories(store, list(records))
    except StoreCorrupt as error:
        return Finding(Check.ROW, error.message, key, flow=key)
    lives = [life_of(one, record, histories[one]) for one, record in records.items()]
    return Whole(flow, lives)


async def _histories(store: ReadStore, keys: Sequence[Key]) -> dict[Key, Sequence[Fed]]:
    found: dict[Key, Sequence[Fed]] = {}
    for start in range(0, len(keys), _RECORDS):
        some = keys[start : start + _RECORDS]
        found.update(zip(some, await store.histories(some), strict=True))
    return found


def _records(flow: Flow) -> dict[Key, Recorded]:
    steps = {(step.tenant, step.id): step for step in flow.steps.values()}
    return {key_of(flow.workflow): flow.workflow, **steps}
