"""A store to hold the contract against, and the questions that are asked of it after every test."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from detent.lifecycle import job as j
from detent.lifecycle import seal
from detent.lifecycle import workflow as w
from detent.lifecycle.event import By, Event
from detent.lifecycle.replay import audit
from detent.stores.api import (
    Claimed,
    Committed,
    Due,
    Fed,
    GateKind,
    GateRow,
    Key,
    Limit,
    LimitKind,
    LimitRow,
    Logged,
    Move,
    New,
    Outcome,
    Retention,
    Store,
    Stored,
    Unit,
    WorkerRow,
    key_of,
)
from detent.stores.select import Page
from tests.contract.making import SECOND, WORKER, Clock, Maker, resealed

HOUR = 3_600 * SECOND


class World:
    """One open store, its clock, and short words for what tests do again and again."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.make = Maker(clock)
        self.forgotten: list[j.Job] = []

    @property
    def now(self) -> int:
        """The present moment."""
        return self.clock.now

    async def commit(self, *units: Unit) -> list[Outcome]:
        """The answers to these units."""
        return list((await self.store.step(units, now=self.now)).outcomes)

    async def must(self, *units: Unit) -> None:
        """Commit units that nothing speaks against."""
        outcomes = await self.commit(*units)
        assert outcomes == [Committed()] * len(units), outcomes

    async def push(self, **more: Any) -> j.Job:
        """A new job."""
        unit = self.make.pushed(**more)
        await self.must(unit)
        return unit.new[0].job

    async def do(self, job: j.Job, command: j.Command, by: By, **more: Any) -> j.Job:
        """The job after the command."""
        unit = self.make.doing(job, command, by, **more)
        await self.must(unit)
        return unit.moves[0].job

    async def make_flow(
        self, name: str, steps: Sequence[w.StepPlan], *new: New, **more: Any
    ) -> w.Flow:
        """A new workflow; the new jobs name its steps."""
        jobs = Counter(one.job.step or "" for one in new)
        command = w.Make(id=name, steps=tuple(steps), jobs=dict(jobs), **more)
        await self.must(self.make.flowing(None, command, *new))
        return await self.flow(name, more.get("tenant", ""))

    async def flow(self, name: str, tenant: str = "") -> w.Flow:
        """The workflow as it is stored."""
        [flow] = await self.store.flows([(tenant, name)])
        assert flow is not None
        return flow

    async def rearm(self, job: j.Job, wake_at: int | None) -> Outcome:
        """The answer to moving nothing but `wake_at`."""
        unit = Unit(self.make.command_id(), moves=(Move(job.version, job, wake_at=wake_at),))
        [outcome] = await self.commit(unit)
        return outcome

    async def wish(self, number: int = 1, **more: Any) -> Claimed:
        """The answer to a wish; the worker is alive unless it claims over the wire."""
        want = self.make.want(number, **more)
        if not want.wire:
            await self.alive(want.holder)
        stepped = await self.store.step([], now=self.now, want=want)
        assert not stepped.claimed.lost
        return stepped.claimed

    async def claim(self, number: int = 1, **more: Any) -> list[Stored]:
        """The jobs a wish was granted."""
        return list((await self.wish(number, **more)).jobs)

    async def claim_ids(self, number: int = 100, **more: Any) -> list[str]:
        """The jobs a wish was granted, by id."""
        return [one.job.id for one in await self.claim(number, **more)]

    async def complete(self, job: j.Job, **told: Any) -> j.Job:
        """The job after its holder was done with it."""
        done = j.Complete(lease=job.lease)
        return await self.do(job, done, WORKER, store={"lease": job.lease, **told})

    async def claimed(self, **more: Any) -> j.Job:
        """A job that was pushed and claimed."""
        job = await self.push(**{k: more.pop(k) for k in ("profile", "body", "id") if k in more})
        [taken] = await self.claim(**more)
        assert taken.job.id == job.id
        return taken.job

    async def alive(self, *workers: str, until: int | None = None) -> None:
        """Worker instances with a fresh beat."""
        rows = [WorkerRow(one, self.now + HOUR if until is None else until) for one in workers]
        assert list(await self.store.beat(rows, now=self.now)) == [True] * len(rows)

    async def lose(self, worker: str) -> None:
        """A worker instance that is declared lost."""
        await self.alive(worker, until=self.now)
        assert list(await self.store.declare_lost([worker], now=self.now)) == [True]

    async def due(self, limit: int = 1_000, **more: Any) -> list[Due]:
        """What the store hands out as due."""
        return list(await self.store.take_due(now=self.now, limit=limit, **more))

    async def due_ids(self, limit: int = 1_000, **more: Any) -> list[str]:
        """The ids of what is handed out as due."""
        return [one.stored.job.id for one in await self.due(limit, **more)]

    async def gate(self, name: str, kind: GateKind = GateKind.QUEUE, **more: Any) -> None:
        """Say a new word about a gate."""
        tenant = more.pop("tenant", "")
        await self.must(self.switching([GateRow(kind, name, j.Gate(**more), tenant)]))

    async def limit(self, name: str, kind: LimitKind = LimitKind.QUEUE, **more: Any) -> None:
        """Set a limit; one that allows everything is none."""
        tenant = more.pop("tenant", "")
        row = LimitRow(kind, name, Limit(**more) if more else None, tenant)
        await self.must(self.switching(limits=[row]))

    def switching(self, gates: Sequence[GateRow] = (), limits: Sequence[LimitRow] = ()) -> Unit:
        """Gates and limits, and nothing else."""
        return Unit(self.make.command_id(), gates=tuple(gates), limits=tuple(limits))

    async def prune(self, *rules: Retention, limit: int = 1_000) -> int:
        """How many jobs were let go; those whose workflow stays are remembered for its tally."""
        before = await self.everything()
        number = await self.store.prune(rules, now=self.now, limit=limit)
        left = await self.everything()
        gone = [stored.job for key, stored in before.items() if key not in left]
        assert len(gone) == number, "other jobs are gone than were counted"
        assert all(job.ended_at is not None for job in gone), "a live job is gone"
        self.forgotten += gone
        flows = await self.store.flows([(x.tenant, x.workflow or "") for x in self.forgotten])
        kept = zip(self.forgotten, flows, strict=True)
        self.forgotten = [job for job, flow in kept if flow is not None]
        return number

    async def got(self, job: j.Job) -> Stored:
        """The job as the store has it."""
        [stored] = await self.store.get([key_of(job)])
        assert stored is not None
        return stored

    async def everything(self) -> dict[Key, Stored]:
        """All records by key."""
        keys = await self.store.keys(limit=100_000)
        assert len(keys) == len(set(keys)), "a key was given twice"
        found = await self.store.get(keys)
        return {key: stored for key, stored in zip(keys, found, strict=True) if stored is not None}

    async def fed(self) -> list[Fed]:
        """All events with their positions, read in pages that are small at first."""
        fed: list[Fed] = []
        while page := await self.store.feed(fed[-1].pos if fed else 0, 7 + len(fed)):
            positions = [one.pos for one in fed[-1:] + list(page)]
            assert positions == sorted(set(positions)), "positions repeat or go back"
            fed += page
        return fed

    async def feed(self) -> list[Event]:
        """All events in their order."""
        return [one.event for one in await self.fed()]

    async def audit(self) -> None:
        """Whatever was done: every history is a legal life, and every sum is right."""
        records = await self.everything()
        by_record: dict[Key, list[Fed]] = defaultdict(list)
        fed = await self.fed()
        for one in fed:
            by_record[one.event.tenant, one.event.record].append(one)
        lives = {key: stored.job for key, stored in records.items()} | await self._flow_lives()
        lives |= {(one.tenant, one.id): one for one in await self.store.find_instances()}
        assert set(by_record) == set(lives), "records and feed differ"
        histories = await self.store.histories(list(lives))
        for (key, record), told in zip(lives.items(), histories, strict=True):
            assert list(told) == by_record[key], f"history and feed of {key} differ"
            assert (fault := audit([one.event for one in told], record)) is None, fault
        await self._audit_seals({one.pos: one.event for one in fed})
        await self._audit_tallies(records)
        await self._audit_counts(records)
        await self._audit_limits(records)
        await self._audit_logs(records)

    async def _audit_seals(self, events: dict[int, Event]) -> None:
        """Every seal can be made again from the leaves, and only what is sealed can be gone."""
        leaves = dict(await self.store.leaves(0, 100_000))
        assert list(leaves) == list(range(1, len(leaves) + 1)), "leaves have a gap"
        for pos in leaves.keys() & events.keys():
            assert leaves[pos] == seal.leaf(events[pos]), f"the leaf of {pos} is another event's"
        gone = set(range(1, max(events, default=0) + 1)) - events.keys()
        assert gone <= leaves.keys(), "the feed has a gap that was never sealed"
        blocks = list(await self.store.blocks(0, 100_000))
        assert sum(block.count for block in blocks) == len(leaves), "blocks and leaves differ"
        assert resealed(list(leaves.values()), blocks) == blocks, "a seal is broken"

    async def _flow_lives(self) -> dict[Key, Any]:
        """All workflows and steps by key."""
        workflows = await self.store.find_workflows(page=Page(10_000))
        lives: dict[Key, Any] = {key_of(workflow): workflow for workflow in workflows}
        for flow in await self.store.flows(list(lives)):
            assert flow is not None
            lives |= {(step.tenant, step.id): step for step in flow.steps.values()}
        return lives

    async def _audit_tallies(self, records: dict[Key, Stored]) -> None:
        """Every step's tally is what its jobs add up to."""
        workflows = await self.store.find_workflows(page=Page(10_000))
        mine: dict[tuple[str, str | None], list[j.Job]] = defaultdict(list)
        for job in [stored.job for stored in records.values()] + self.forgotten:
            mine[job.tenant, job.step].append(job)
        for flow in await self.store.flows([key_of(one) for one in workflows]):
            assert flow is not None
            for step in flow.steps.values():
                real = w.recount(mine[step.tenant, step.id])
                assert flow.tally(step.id) == real, f"the tally of {step.id}"
            assert all(one.total for one in flow.tallies.values()), "a tally of no jobs"
            assert (fault := w.broken_flow(flow)) is None, fault

    async def _audit_counts(self, records: dict[Key, Stored]) -> None:
        jobs = [stored.job for stored in records.values()]
        real = Counter((job.tenant, job.queue, job.state.value) for job in jobs)
        said = await self.store.counts()
        assert all(one.count > 0 for one in said), "a count of nothing"
        assert {(one.tenant, one.queue, one.state): one.count for one in said} == dict(real)
        for tenant in {job.tenant for job in jobs}:
            mine = [one for one in said if one.tenant == tenant]
            assert list(await self.store.counts(tenant)) == mine, f"counts of tenant {tenant!r}"

    async def _audit_limits(self, records: dict[Key, Stored]) -> None:
        """What a limit says to be in hands is in hands."""
        held = [stored for stored in records.values() if stored.job.lease is not None]
        real = Counter((x.job.tenant, LimitKind.QUEUE, x.job.queue) for x in held)
        real.update((x.job.tenant, LimitKind.KEY, x.body.key or "") for x in held)
        for tenant in {key[0] for key in records}:
            for one in await self.store.limits(tenant):
                assert one.row.tenant == tenant
                assert one.active == real[tenant, one.row.kind, one.row.name], one

    async def _audit_logs(self, records: dict[Key, Stored]) -> None:
        tail = await self.store.log_tail(0, 100_000)
        assert [one.pos for one in tail] == sorted({one.pos for one in tail}), "positions repeat"
        told: dict[Key, list[Logged]] = defaultdict(list)
        for one in tail:
            told[one.key].append(one)
        assert told.keys() <= records.keys(), "lines of nobody"
        # Of those without lines a few are enough: each is a question of its own.
        for key in [*told, *list(records)[:5]]:
            lines = list(await self.store.logs(key, 0, 100_000))
            assert [one.cursor for one in lines] == list(range(1, len(lines) + 1)), "a cursor gap"
            assert told[key] == lines, "tail and log differ"


class Session:
    """An event loop with a world in it, for tests that are not coroutines themselves."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.runner = asyncio.Runner()
        self.world = World(self.runner.run(store.__aenter__()), clock)

    def close(self) -> None:
        """Close the store and the loop, whatever happened."""
        try:
            self.runner.run(self.world.store.__aexit__(None, None, None))
        finally:
            self.runner.close()
