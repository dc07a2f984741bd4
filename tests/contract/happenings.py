"""More chance: workflows, limits, small records, notes, sealing and forgetting; and all of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from detent.lifecycle import workflow as w
from detent.lifecycle.workflow import Condition, Fails, Policy, StepPlan, WhenEmpty
from detent.stores.api import (
    Fair,
    FlowMove,
    Key,
    Limit,
    LimitKind,
    LimitRow,
    New,
    Note,
    Record,
    Retention,
    Unit,
    key_of,
)
from tests.contract.chance import KEYS, LIVE, QUEUES, TENANTS, Chance
from tests.contract.making import SECOND, SYSTEM, USER
from tests.contract.twins import KINDS, Twins

STATES = ("completed", "discarded", "cancelled", "completed", "cancelled", *LIVE)


class Happenings(Chance):
    """Everything that can happen to a store."""

    def __init__(self, twins: Twins) -> None:
        super().__init__(twins)
        self.flows: list[w.Flow] = []

    # --- workflows ----------------------------------------------------------------------------

    async def make_flow(self, rng: Random) -> None:
        """A new workflow of a few steps, some with jobs, now and then under an id in use."""
        name = f"{rng.randrange(10**9):09}"
        if rng.random() < 0.1 and self.flows:
            name = rng.choice(self.flows).workflow.id
        usual = rng.random() < 0.9 or not self.flows
        prefix = name if usual else rng.choice(self.flows).workflow.id
        steps = w.check_graph(self._planned(rng, prefix))
        jobs = {step.id: rng.randrange(3) for step in steps}
        make = w.Make(
            id=name,
            tenant=rng.choice(TENANTS),
            steps=steps,
            jobs=jobs,
            draft=rng.random() < 0.3,
        )
        await self._flowing(rng, None, make, jobs)

    async def steer(self, rng: Random) -> None:
        """A command to a workflow, mostly as it is; what was asked least often comes first."""
        flow = await self._flow(rng)
        if flow is None:
            return
        asked = self._flow_commands(rng, flow)
        rng.shuffle(asked)
        asked.sort(key=lambda one: self.asked[flow.workflow.state, one[0].event])
        for command, jobs in asked if rng.random() < 0.7 else asked[:1]:
            if await self._flowing(rng, flow, command, jobs):
                return

    async def work(self, rng: Random) -> None:
        """A job in hands that belongs to a workflow comes to an end: steps need many of them."""
        records = await self.twins.everything()
        held = [x.job for x in records.values() if x.job.workflow and x.job.lease]
        units = [self._commanded(rng, job) for job in rng.sample(held, min(len(held), 3))]
        await self._step(rng, [unit for unit in units if unit is not None])

    def _planned(self, rng: Random, name: str) -> list[StepPlan]:
        steps: list[StepPlan] = []
        for number in range(rng.randrange(1, 4)):
            before = [step.id for step in steps]
            some = tuple(rng.sample(before, rng.randrange(len(before) + 1)))
            steps.append(StepPlan(f"{name}-{number}", some, self._policy(rng, bool(some))))
        return steps

    def _policy(self, rng: Random, depends: bool) -> Policy:
        conditions = list(Condition) if depends else [Condition.SUCCESS, Condition.ALWAYS]
        return Policy(
            rng.choice(list(Fails)),
            rng.choice(conditions),
            rng.choice(list(WhenEmpty)),
            rng.random() < 0.2,
        )

    def _flow_commands(self, rng: Random, flow: w.Flow) -> list[tuple[Any, dict[str, int]]]:
        step = rng.choice(list(flow.steps))
        plan = StepPlan(f"{flow.workflow.id}-{rng.randrange(10**6)}", policy=Policy())
        added = rng.randrange(1, 3)
        return [
            (w.Open(), {}),
            (w.Pause(), {}),
            (w.Resume(), {}),
            (w.Release(step), {}),
            (w.Wait(step), {}),
            (w.AddJobs(step, added), {step: added}),
            (w.AddStep(plan, 1, after_last=rng.random() < 0.5), {plan.id: 1}),
            (w.Abort(), {}),
        ]

    async def _flowing(
        self, rng: Random, flow: w.Flow | None, command: Any, jobs: dict[str, int]
    ) -> bool:
        """Ask for it, if the lifecycle does; the jobs come in the same unit."""
        command_id, by = self.make.command_id(), USER if rng.random() < 0.8 else SYSTEM
        answer = w.decide(flow, command, self.now, w.Context(by, command_id))
        if not isinstance(answer, w.Accepted):
            return False
        if flow is not None:
            self.asked[flow.workflow.state, command.event] += 1
        new = self._members(rng, answer.flow, jobs, command_id)
        await self._step(rng, [Unit(command_id, new=new, flow=FlowMove(flow, answer))])
        self.flows.append(answer.flow)
        return True

    def _members(
        self, rng: Random, flow: w.Flow, jobs: dict[str, int], command_id: str
    ) -> tuple[New, ...]:
        home = {"tenant": flow.workflow.tenant, "workflow": flow.workflow.id}
        born = [
            {**self._born(rng), **home, "step": step} for step in jobs for _ in range(jobs[step])
        ]
        return tuple(self.make.new(**one, command_id=command_id) for one in born)

    async def _flow(self, rng: Random) -> w.Flow | None:
        """A workflow as it is, one of the last few mostly, or one as it was a while ago."""
        if not self.flows:
            return None
        chosen = rng.choice(self.flows[-6:] if rng.random() < 0.7 else self.flows)
        if rng.random() < 0.15:
            return chosen
        [flow] = await self.twins.model.flows([key_of(chosen.workflow)])
        return flow

    def _home(self, rng: Random) -> dict[str, Any]:
        if not self.flows or rng.random() < 0.95:
            return {}
        flow = rng.choice(self.flows)
        step = rng.choice(list(flow.steps))
        return {"tenant": flow.workflow.tenant, "workflow": flow.workflow.id, "step": step}

    # --- beside the jobs ----------------------------------------------------------------------

    async def limit(self, rng: Random) -> None:
        """A limit is set, changed or lifted."""
        kind = rng.choice(list(LimitKind))
        name = rng.choice(QUEUES if kind is LimitKind.QUEUE else KEYS) or "nobody"
        parts = {
            "concurrency": rng.randrange(1, 4),
            "rate": rng.randrange(1, 4),
            "spacing_us": rng.randrange(1, 3 * SECOND),
        }
        told = {part: value for part, value in parts.items() if rng.random() < 0.5}
        told = {} if rng.random() < 0.2 else told
        limit = Limit(**told, period_us=rng.randrange(1, 9 * SECOND)) if told else None
        rows = [LimitRow(kind, name, limit, rng.choice(TENANTS))]
        unit = Unit(self.make.command_id(), limits=tuple(rows))
        await self.twins.both(lambda store: store.step([unit], now=self.now))

    async def crowd(self, rng: Random) -> None:
        """Several want what limits keep back, now and at the very moment they were told."""
        tenant, queue, key = rng.choice(TENANTS), rng.choice(QUEUES), rng.choice(KEYS)
        place = {"tenant": tenant, "queue": queue, "body": replace(self._body(rng), key=key)}
        units = [self.make.pushed(**place) for _ in range(rng.randrange(1, 4))]
        for _ in range(rng.randrange(3)):
            await self.limit(rng)
        for _ in range(rng.randrange(1, 4)):
            queues = rng.choice([(queue,), ("other", "default")])
            fair = rng.choice([None, *Fair])
            want = self.make.want(3, tenant=tenant, queues=queues, wire=True, fair=fair)
            await self._step(rng, units, want)
            units = []
            coming = [at for at in self.moments[-1:] if at > self.now and rng.random() < 0.7]
            self.twins.clock.move(sum(at - self.now for at in coming))

    async def put(self, rng: Random) -> None:
        """Small records are put, alone or with a job, on the newest version or on another."""
        names = {self._name(rng) for _ in range(rng.randrange(1, 3))}
        puts = tuple([await self._next(rng, *name) for name in sorted(names)])
        unit = self._pushed(rng) if rng.random() < 0.3 else Unit(self.make.command_id())
        await self._step(rng, [replace(unit, puts=puts)])

    def _name(self, rng: Random) -> tuple[str, str, str]:
        return rng.choice(KINDS), rng.choice(TENANTS), rng.choice("abc")

    async def _next(self, rng: Random, kind: str, tenant: str, name: str) -> Record:
        [stored] = await self.twins.model.record([(kind, tenant, name)])
        version = (stored.version if stored else 0) + rng.choice([1, 1, 1, 1, 0, 2])
        data = rng.choice([None, f"{rng.random()}", f"{rng.random()}"])
        wake_at = rng.choice([None, self.now + rng.randrange(9 * SECOND)])
        return Record(kind, name, version, data, wake_at, tenant)

    async def wake_records(self, rng: Random) -> None:
        """Small records that are due are handed out."""
        hold, most = rng.choice([1, SECOND, 60 * SECOND]), rng.randrange(1, 5)
        await self.twins.both(
            lambda store: store.take_due_records(now=self.now, limit=most, hold_us=hold)
        )

    async def note(self, rng: Random) -> None:
        """Holders of now and of long ago say how far they are."""
        jobs = [job for job in [await self._job(rng) for _ in range(3)] if job is not None]
        notes = [
            (key_of(job), job.lease or "none", Note(self.now, job.attempt, rng.randrange(101)))
            for job in jobs
        ]
        await self.twins.both(lambda store: store.note(notes, now=self.now))

    async def forget(self, rng: Random) -> None:
        """Some of what happened is sealed; some of what has ended, or came of it, is let go."""
        for _ in range(rng.randrange(4)):
            most = rng.choice([3, 50])
            await self.twins.both(lambda store, n=most: store.seal(limit=n))  # type: ignore[misc]
        ends = [one.job.ended_at for one in (await self.twins.everything()).values()]
        instants = [at + rng.randrange(2) for at in ends if at is not None] or [self.now]
        rules = [
            Retention(
                rng.choice(STATES),
                rng.choice([*instants, self.now]),
                rng.choice([None, *TENANTS]),
                rng.choice([None, None, *QUEUES]),
            )
            for _ in range(rng.randrange(4))
        ]
        limit = rng.choice([1, 3, 1_000])
        await self.twins.both(lambda store: store.prune(rules, now=self.now, limit=limit))
        # All that are due: several may be looked at again at the same moment.
        await self.twins.both(lambda store: store.forget_results(now=self.now))
        await self._drop_gone()

    async def _drop_gone(self) -> None:
        """What is gone is not asked for as if it were there; a few old decisions stay."""
        left: dict[Key, Any] = await self.twins.everything()
        self.seen = [job for n, job in enumerate(self.seen) if key_of(job) in left or n % 5 == 0]


Action = Callable[[Happenings, Random], Awaitable[None]]
ACTIONS: dict[Action, int] = {
    Happenings.push: 6,
    Happenings.command: 14,
    Happenings.claim: 10,
    Happenings.tick: 8,
    Happenings.pass_time: 8,
    Happenings.beat: 4,
    Happenings.again: 4,
    Happenings.steer: 6,
    Happenings.work: 6,
    Happenings.make_flow: 3,
    Happenings.replace: 3,
    Happenings.put: 3,
    Happenings.forget: 2,
    Happenings.lose: 2,
    Happenings.bury: 2,
    Happenings.supervise: 2,
    Happenings.extend: 2,
    Happenings.limit: 3,
    Happenings.crowd: 4,
    Happenings.rearm: 1,
    Happenings.note: 2,
    Happenings.wake_records: 1,
    Happenings.gate: 1,
    Happenings.log: 1,
    Happenings.look: 1,
    Happenings.break_rules: 1,
}
"""Everything that can happen, and how often it does."""


async def live(chance: Happenings, rng: Random, steps: int) -> None:
    """A whole run: something happens, and the twins are compared, again and again."""
    actions, weights = list(ACTIONS), list(ACTIONS.values())
    for _ in range(steps):
        [action] = rng.choices(actions, weights)
        await action(chance, rng)
        await chance.twins.compare()
