"""A workflow that was started: how far it is, what came out of it, and how it is steered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from detent.app.asking import Call, need_calls
from detent.app.reference import Reference
from detent.app.shapes import Workflow, asked
from detent.app.waiting import looks, moment
from detent.engine.progress import Progress, StepProgress
from detent.engine.shaping import Order
from detent.engine.workflows import Workflows
from detent.errors import (
    BadOption,
    DetentError,
    ResultTimeout,
    UnknownWorkflow,
    WorkflowAborted,
    WorkflowFailed,
)
from detent.lifecycle import workflow as w
from detent.lifecycle.machine import Refusal
from detent.lifecycle.workflow import StepState, WorkflowState
from detent.runtime.bridge import awaiting, blocking
from detent.runtime.encoding import BadValue, encode
from detent.runtime.outcomes import Span

if TYPE_CHECKING:
    from detent.app.detent import Detent

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
WHOLE = 100


class StepStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it is at one moment: where it stands, and how many of its jobs do what."""

    name: str
    state: str
    percent: int
    after: tuple[str, ...]
    needs_approval: bool
    jobs: int
    waiting: int
    running: int
    completed: int
    failed: int
    """Those that ended without completing, called off or discarded."""


class WorkflowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it is at one moment.

    `percent` counts jobs that have completed; it is 100 when the workflow has, and not before.
    """

    id: str
    name: str
    state: str
    percent: int
    steps: tuple[StepStatus, ...]
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cause: str | None = None

    @property
    def is_ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.ended_at is not None

    def step(self, name: str) -> StepStatus:
        """The step of that name."""
        steps = {step.name: step for step in self.steps}
        if name not in steps:
            why = f"No step of it is called {name!r}: there are {', '.join(steps)}"
            raise BadOption(why, option="step", value=name)
        return steps[name]


class WorkflowHandle(Reference, Generic[R_co]):
    """One workflow. Methods that begin with an a are awaited, the others wait."""

    way = "workflow"

    async def _status(self) -> WorkflowStatus:
        """Where it and its steps are now."""
        return _status_of(await self._found())

    async def _progress(self) -> int:
        """How far it is, in percent: completed jobs of all, and 100 only when it has completed."""
        return (await self._status()).percent

    async def _result(self, timeout: Span | None = None) -> list[R_co]:  # noqa: ASYNC109 - it goes on
        """What the jobs of its last steps returned, waited for, in the order of their calls.

        The last steps are those that no other comes after. `WorkflowFailed` or `WorkflowAborted`
        if it did not complete.
        """
        status = await self._ended(timeout)
        if status.state != WorkflowState.COMPLETED:
            raise _why_not(status)
        later = {name for step in status.steps for name in step.after}
        found: list[R_co] = []
        for step in status.steps:
            if step.name not in later:
                found += await self._returned(step.name)
        return found

    async def _results(self, step: str) -> list[Any]:
        """What the jobs of a step have returned so far, in the order of their calls."""
        (await self._status()).step(step)
        return await self._returned(step)

    async def _returned(self, step: str) -> list[Any]:
        flows = (await self.app.engine()).workflows
        found = await flows.results_of((self.tenant, self.id), step)
        done = [one for one in found if one.state == "completed"]
        return [self.app.returned(one.type, one.result) for one in done]

    async def _pause(self, reason: str | None = None) -> WorkflowStatus:
        """Let no further job start; what runs goes on."""
        return await self._steer(lambda flows, key: flows.pause(key, self.app.by, reason))

    async def _resume(self, reason: str | None = None) -> WorkflowStatus:
        """Let jobs start again."""
        return await self._steer(lambda flows, key: flows.resume(key, self.app.by, reason))

    async def _abort(self, reason: str | None = None) -> WorkflowStatus:
        """Call it off: what waits is cancelled, what runs may end as it will."""
        return await self._steer(lambda flows, key: flows.abort(key, self.app.by, reason))

    async def _approve(self, step: str, reason: str | None = None) -> WorkflowStatus:
        """Open the gate before a step; refused when its turn has not come."""
        return await self._steer(lambda flows, key: flows.approve(key, step, self.app.by, reason))

    def add(
        self, step: str, calls: Sequence[Call[Any]], reason: str | None = None
    ) -> WorkflowStatus:
        """More jobs for a step that has not started, all or none of them."""
        own = self.app.own(need_calls(calls))
        with self.app.calls.waited(own, self.bridge):
            return self.bridge.run(self._add(step, own, reason))

    async def aadd(
        self, step: str, calls: Sequence[Call[Any]], reason: str | None = None
    ) -> WorkflowStatus:
        """The same, awaited."""
        own = self.app.own(need_calls(calls))
        async with self.app.calls.awaited(own):
            return await self.bridge.reach(self._add(step, own, reason))

    async def _add(
        self, step: str, calls: Sequence[Call[Any]], reason: str | None
    ) -> WorkflowStatus:
        engine = await self.app.engine()
        asks = list(asked(calls, engine.store.now()))
        await self.app.connection.set_limits_of(calls)
        return await self._steer(
            lambda flows, key: flows.add_jobs(key, step, asks, self.app.by, reason)
        )

    status, astatus = blocking(_status), awaiting(_status)
    progress, aprogress = blocking(_progress), awaiting(_progress)
    result, aresult = blocking(_result), awaiting(_result)
    results, aresults = blocking(_results), awaiting(_results)
    pause, apause = blocking(_pause), awaiting(_pause)
    resume, aresume = blocking(_resume), awaiting(_resume)
    abort, aabort = blocking(_abort), awaiting(_abort)
    approve, aapprove = blocking(_approve), awaiting(_approve)

    async def _steer(
        self, command: Callable[[Workflows, tuple[str, str]], Awaitable[w.Answer]]
    ) -> WorkflowStatus:
        engine = await self.app.engine()
        await self._found()
        answer = await command(engine.workflows, (self.tenant, self.id))
        if isinstance(answer, Refusal):
            raise answer.error()
        return await self._status()

    async def _found(self) -> Progress:
        found = await (await self.app.engine()).workflows.get((self.tenant, self.id))
        if found is None:
            why = "another store, another tenant, or it was forgotten"
            told = {"id": self.id, "tenant": self.tenant}
            raise UnknownWorkflow(f"There is no workflow {self.id}: {why}", **told)
        return found

    async def _ended(self, within: Span | None) -> WorkflowStatus:
        async for _ in looks(within):
            status = await self._status()
            if status.is_ended:
                return status
        why = f"Workflow {self.id} is {status.state} and has not ended in time; it goes on"
        raise ResultTimeout(why, id=self.id, state=status.state)


async def begin(
    app: Detent,
    workflow: Workflow[R],
    id: str | None,  # noqa: A002
    name: str,
    meta: Mapping[str, Any] | None,
) -> WorkflowHandle[R]:
    """Make it and all its jobs, all or nothing; run in the loop of the bridge."""
    engine = await app.engine()
    order = Order(
        parts=workflow.parts(engine.store.now()),
        id=id,
        tenant=workflow.tenant,
        name=name,
        meta=_meta(meta),
    )
    await app.connection.set_limits_of(workflow.calls)
    made = await engine.workflows.create(order, app.by)
    if isinstance(made, Refusal):
        raise made.error()
    return WorkflowHandle(app, made.id, order.tenant, is_new=made.is_new)


def _meta(meta: Mapping[str, Any] | None) -> str:
    try:
        return encode(dict(meta or {})).decode()
    except BadValue as bad:
        why = f"The workflow's meta cannot be written as JSON: {bad}"
        raise BadOption(why, option="meta") from None


def _why_not(status: WorkflowStatus) -> DetentError:
    told = {"id": status.id, "cause": status.cause}
    if status.state == WorkflowState.ABORTED:
        return WorkflowAborted(f"Workflow {status.id} was aborted ({status.cause})", **told)
    failed = [step.name for step in status.steps if step.state == StepState.FAILED]
    why = f"Workflow {status.id} failed: step {', '.join(failed)} did"
    return WorkflowFailed(why, steps=failed, **told)


def _status_of(progress: Progress) -> WorkflowStatus:
    flow, steps = progress.workflow, tuple(map(_step_of, progress.steps))
    return WorkflowStatus(
        id=flow.id,
        name=progress.name,
        state=flow.state.value,
        percent=_percent(flow.state, steps),
        steps=steps,
        created_at=moment(flow.created_at),
        started_at=None if flow.started_at is None else moment(flow.started_at),
        ended_at=None if flow.ended_at is None else moment(flow.ended_at),
        cause=flow.cause,
    )


def _percent(state: WorkflowState, steps: Sequence[StepStatus]) -> int:
    """Steps may end without their jobs (callbacks that were not called for): then it is whole."""
    if state is WorkflowState.COMPLETED:
        return WHOLE
    jobs, completed = sum(step.jobs for step in steps), sum(step.completed for step in steps)
    return min(WHOLE * completed // jobs, WHOLE - 1) if jobs else 0


def _step_of(step: StepProgress) -> StepStatus:
    tally = step.tally
    return StepStatus(
        name=step.name,
        state=step.state.value,
        percent=step.percentage,
        after=step.depends_on,
        needs_approval=step.needs_approval,
        jobs=tally.total,
        waiting=tally.waiting,
        running=tally.in_progress,
        completed=tally.completed,
        failed=tally.spoiled,
    )
