"""Chance makes workflows and works on them through several engines at once, until all is over.

What became of them is then judged by a few lines that know nothing of tallies and cascades: which
jobs completed, and what the graph says about that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, ClassVar

from detent.engine.asks import Ask
from detent.engine.building import Created
from detent.engine.commands import Change
from detent.engine.engine import Engine
from detent.engine.keeping import name_in
from detent.engine.shaping import Order, Part, batch, chain, group, stages
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Refusal
from detent.lifecycle.retry import RetryPolicy
from detent.lifecycle.workflow import Condition, Fails, Flow, Policy, StepPlan
from detent.stores.api import Key, Store, Stored, WorkerRow, key_of
from detent.stores.select import Filter, Page
from tests.contract.making import SECOND, USER
from tests.contract.world import World
from tests.engine.working import completed, failed

ROUNDS = 25
JOBS_MAX = 4
Act = Coroutine[Any, Any, Any]


class Chance:
    """A few workflows, a few engines, and everything that may happen to them."""

    def __init__(self, world: World, seed: int, *others: Store) -> None:
        self.world = world
        self.random = Random(seed)
        shared = [world.store, world.store, *others]
        self.engines = [Engine(store, jitter=lambda: 0.5) for store in shared]
        self.keys: list[Key] = []
        self.held: list[Stored] = []
        self.workers = 0

    async def run(self) -> None:
        """Make, work, and finish."""
        for number in range(self.random.randint(1, 3)):
            await self._make(number)
        for _ in range(ROUNDS):
            chosen = self.random.choices(list(self._weights), list(self._weights.values()), k=4)
            await asyncio.gather(*(act(self) for act in chosen))
            self.world.clock.move(self.random.choice([0, 0, SECOND, 3 * SECOND]))
        await self._finish()

    @property
    def engine(self) -> Engine:
        """One of the engines."""
        return self.random.choice(self.engines)

    # --- what is made ---------------------------------------------------------------------------

    async def _make(self, number: int) -> None:
        key = ("", f"w{number}")
        order = Order(parts=self._parts(), id=key[1])
        made = await asyncio.gather(*(one.workflows.create(order, USER) for one in self.engines))
        assert sum(isinstance(one, Created) and one.is_new for one in made) == 1
        self.keys.append(key)

    def _parts(self) -> tuple[Part, ...]:
        shapes: list[Callable[[], tuple[Part, ...]]] = [
            lambda: chain(*(self._jobs(1) for _ in range(self.random.randint(1, 4)))),
            lambda: group(*self._jobs(1)),
            lambda: batch(self._jobs(1), on_success=_ask(), on_failure=_ask(), on_complete=_ask()),
            lambda: stages({name: self._jobs(1) for name in "abc"}, gate=self._some("abc")),
            self._graph,
            self._graph,
        ]
        return self.random.choice(shapes)()

    def _graph(self) -> tuple[Part, ...]:
        names = "abcdefg"[: self.random.randint(2, 7)]
        return tuple(
            Part(self._plan(name, names[:place]), tuple(self._jobs(0)))
            for place, name in enumerate(names)
        )

    def _plan(self, name: str, earlier: str) -> StepPlan:
        before = tuple(self._some(earlier))
        conditions = list(Condition) if before else [Condition.SUCCESS, Condition.ALWAYS]
        policy = Policy(
            self.random.choice(list(Fails)),
            self.random.choice([Condition.SUCCESS, *conditions]),
            gate=self.random.random() < 0.15,
        )
        return StepPlan(name, before, policy)

    def _jobs(self, least: int) -> list[Ask]:
        return [_ask() for _ in range(self.random.randint(least, JOBS_MAX))]

    def _some(self, names: str) -> list[str]:
        return [name for name in names if self.random.random() < 0.4]

    # --- what happens ---------------------------------------------------------------------------

    async def _claim(self) -> None:
        self.workers += 1
        holder = f"w{self.workers}"
        await self.world.alive(holder)
        want = self.world.make.want(self.random.randint(1, 4), holder=holder)
        claimed = await self.engine.claim(want)
        self.held += claimed.jobs

    def _take(self) -> list[Stored]:
        self.random.shuffle(self.held)
        number = self.random.randint(1, 4)
        taken, self.held = self.held[:number], self.held[number:]
        return taken

    async def _report(self) -> None:
        """Two engines report on the same jobs at once, and do not agree."""
        taken = self._take()
        says = [self.random.choice([completed, completed, completed, failed]) for _ in taken]
        first = self.engine.carry_out([say(one) for say, one in zip(says, taken, strict=True)])
        second = self.engine.carry_out([failed(one) for one in taken[:1]])
        answers, rivals = await asyncio.gather(first, second)
        for answer, rival in zip(answers, rivals, strict=False):
            assert isinstance(answer, Refusal) or isinstance(rival, Refusal), "both were heard"

    async def _complete(self) -> None:
        await self.engine.carry_out([completed(one) for one in self._take()])

    async def _cancel(self) -> None:
        found = await self.world.store.find(Filter(), Page(1_000))
        chosen = self.random.sample(list(found), min(1, len(found)))
        await self.engine.carry_out([Change(key_of(one.job), j.Cancel(), USER) for one in chosen])

    async def _lose(self) -> None:
        holders = sorted({stored.job.holder or "" for stored in self._take()})
        rows = [WorkerRow(holder, self.world.now) for holder in holders]
        await self.world.store.beat(rows, now=self.world.now)
        await self.world.store.declare_lost(holders, now=self.world.now)

    async def _upkeep(self) -> None:
        await asyncio.gather(*(engine.upkeep.turn() for engine in self.engines[-2:]))

    async def _pause(self) -> None:
        await self.engine.workflows.pause(self.random.choice(self.keys), USER)

    async def _resume(self) -> None:
        await self.engine.workflows.resume(self.random.choice(self.keys), USER)

    async def _abort(self) -> None:
        if self.random.random() < 0.3:
            await self.engine.workflows.abort(self.random.choice(self.keys), USER)

    async def _approve(self) -> None:
        for key, step in await self._steps():
            await self.engine.workflows.approve(key, step, USER)

    async def _wait(self) -> None:
        steps = await self._steps()
        if steps:
            key, step = self.random.choice(steps)
            await self.engine.workflows.wait(key, step, USER)

    async def _grow(self) -> None:
        key = self.random.choice(self.keys)
        if self.random.random() < 0.5:
            name = f"more{self.random.randint(1, 3)}"
            part = Part(StepPlan(name), tuple(self._jobs(0)))
            await self.engine.workflows.add_step(key, part, USER, after_last=True)
        for _, step in (await self._steps())[:1]:
            await self.engine.workflows.add_jobs(key, step, self._jobs(1), USER)

    _weights: ClassVar[dict[Callable[[Chance], Act], int]] = {
        _claim: 6,
        _report: 3,
        _complete: 5,
        _cancel: 1,
        _lose: 1,
        _upkeep: 4,
        _pause: 1,
        _resume: 2,
        _abort: 1,
        _approve: 2,
        _wait: 1,
        _grow: 1,
    }

    # --- how it ends ----------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Everybody does what is left to do: afterwards nothing is live."""
        for _ in range(100):
            for key in self.keys:
                await self.engine.workflows.resume(key, USER)
            await self._approve()
            await asyncio.gather(self._claim(), self._claim(), self._claim())
            await asyncio.gather(self._complete(), self._complete(), self._upkeep())
            self.world.clock.move(SECOND)
            if not self.held and not await self._live():
                return
        raise AssertionError("something stays live for ever")

    async def _live(self) -> bool:
        ended = ("completed", "discarded", "cancelled")
        counts = [one for one in await self.world.store.counts() if one.state not in ended]
        flows = await self.world.store.flows(self.keys)
        return bool(counts) or any(one and one.workflow.ended_at is None for one in flows)

    async def _steps(self) -> list[tuple[Key, str]]:
        flows = await self.world.store.flows(self.keys)
        return [
            (key_of(flow.workflow), name_in(flow.workflow.id, step))
            for flow in flows
            if flow is not None
            for step in flow.steps
        ]

    async def judge(self) -> list[Event]:
        """Raise if anything is not as the graph says; all events of workflows and steps."""
        await self.world.audit()
        for flow in await self.world.store.flows(self.keys):
            assert flow is not None
            chosen = Filter(workflow=flow.workflow.id)
            jobs = [one.job for one in await self.world.store.find(chosen, Page(10_000))]
            judge(flow, jobs)
        return [one for one in await self.world.feed() if one.kind in ("workflow", "step")]


def _ask() -> Ask:
    return Ask(type="x", retry=RetryPolicy(max_attempts=2, initial_us=SECOND, jitter=False))


def judge(flow: Flow, jobs: list[j.Job]) -> None:
    """Whether workflow and steps stand as they must, given how the jobs ended."""
    assert all(job.ended_at is not None for job in jobs)
    assert flow.workflow.ended_at is not None, "it never ended"
    if flow.workflow.state == "aborted":
        assert all(step.ended_at is not None for step in flow.steps.values())
        return
    ends: dict[str, str] = {}
    for step in flow.steps.values():
        mine = [job for job in jobs if job.step == step.id]
        ends[step.id] = _end(step, {ends[one] for one in step.depends_on}, mine)
        expected = {"good": {"completed"}, "bad": {"failed"}}
        assert step.state in expected.get(ends[step.id], {"created", "waiting"}), step
        if ends[step.id] in ("blocked", "spared"):
            assert all((job.state, job.attempt) == ("cancelled", 0) for job in mine), "it ran"
    has_failed = "bad" in ends.values()
    assert flow.workflow.state == ("failed" if has_failed else "completed")


def _end(step: w.Step, before: set[str], jobs: list[j.Job]) -> str:
    """How a step must have ended: it ran well or badly, or was blocked or spared."""
    is_bad = bool(before & {"bad", "blocked"})
    runs = {
        Condition.ALWAYS: True,
        Condition.FAILURE: is_bad,
        Condition.SUCCESS: before <= {"good"},
    }[step.policy.condition]
    if runs:
        return "good" if all(job.state == "completed" for job in jobs) else "bad"
    return "blocked" if step.policy.condition is Condition.SUCCESS and is_bad else "spared"
