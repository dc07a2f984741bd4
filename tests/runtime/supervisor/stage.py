"""Virtual time, puppets for bodies, and a tree to put them on."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Any

from detent.lifecycle.worker import Ending, Exit, Instance, fold
from detent.runtime.supervisor.backoff import Backoff
from detent.runtime.supervisor.body import Born, Handover, Usage
from detent.runtime.supervisor.core import Plan
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.spec import Spec
from detent.runtime.supervisor.supervisor import Supervisor
from detent.runtime.supervisor.tree import Tree

EPOCH = 1_700_000_000_000_000
CALM = Backoff(initial_s=1, most_s=8, factor=2, reset_s=100, jitter=0)


class VirtualClock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self._mono = 100.0
        self._set_us = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = count()

    def now(self) -> int:
        return EPOCH + self._set_us + round(self._mono * 1_000_000)

    def set(self, seconds: float) -> None:
        """Somebody sets the clock of the machine; no time passes by that."""
        self._set_us += round(seconds * 1_000_000)

    def monotonic(self) -> float:
        return self._mono

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._mono + max(seconds, 0), next(self._number), woken))
        await woken

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(80):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let that much time pass, in the order of who waits for it."""
        until = self._mono + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            await self._wake()
        self._mono = until
        await self.settle()

    def stand_still(self, seconds: float) -> None:
        """Let time pass while nobody can do anything, as when the process is stopped."""
        self._mono += seconds

    async def until(self, holds: Callable[[], bool], limit_s: float = 10_000) -> None:
        """Let time pass until it holds; an error if it never does."""
        end = self._mono + limit_s
        await self.settle()
        while not holds():
            assert self._sleepers, "nobody waits for anything, and it does not hold"
            assert self._mono <= end, "it does not hold in time"
            await self._wake()

    async def _wake(self) -> None:
        at, _, woken = heapq.heappop(self._sleepers)
        if not woken.done():
            self._mono = max(self._mono, at)
            woken.set_result(None)
            await self.settle()


class Numbers:
    """Collects what a supervisor counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.values: dict[str, list[float]] = {}
        self.labels: dict[str, list[Mapping[str, str]]] = {}

    def count(self, name: str, labels: Mapping[str, str]) -> None:
        self.counts[name] += 1
        self.labels.setdefault(name, []).append(dict(labels))

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self.values.setdefault(name, []).append(value)
        self.labels.setdefault(name, []).append(dict(labels))


class Puppet:
    """A body that does what the test says, and writes down what it was told."""

    kind = "process"
    pids = count(1_000)

    def __init__(self, **how: Any) -> None:
        self.suspendable = bool(how.get("suspendable", True))
        self.ready_in: float | None = how.get("ready_in", 0.0)
        self.waits = bool(how.get("waits", False))
        self.obeys_in: float | None = how.get("obeys_in", 0.0)
        self.quiet_in: float | None = how.get("quiet_in", 0.0)
        self.spawn_error: Exception | None = how.get("spawn_error")
        self.spawn_in: float = how.get("spawn_in", 0.0)
        self.dies_in: float | None = how.get("dies_in")
        self.exit: Exit = how.get("exit", Exit.of_process(1))
        self.log: list[str] = how.get("log", [])
        self.name: str = how.get("name", "")
        self.well = True
        self.used = Usage()
        self.stacks = "the stacks"
        self.told: list[str] = []
        self.handover: Handover | None = None
        self.clock: VirtualClock
        self._end: asyncio.Future[Exit] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def spawn(self, handover: Handover) -> Born | None:
        self.handover = handover
        self._tell("spawn")
        if self.spawn_in:
            await self.clock.sleep(self.spawn_in)
        if self.spawn_error is not None:
            raise self.spawn_error
        self._end = asyncio.get_running_loop().create_future()
        if self.dies_in is not None:
            self._later(self.dies_in, self.exit)
        return Born(next(Puppet.pids), self.clock.now())

    async def ready(self) -> None:
        if self.ready_in is None:
            await asyncio.get_running_loop().create_future()
        elif self.ready_in:
            await self.clock.sleep(self.ready_in)

    async def ended(self) -> Exit:
        assert self._end is not None
        return await asyncio.shield(self._end)

    async def ask(self, grace_s: float) -> None:
        self._tell(f"ask {grace_s:g}")
        if self.obeys_in is not None:
            self._later(self.obeys_in, Exit.of_process(-15))

    async def hasten(self, grace_s: float) -> None:
        self._tell(f"hasten {grace_s:g}")

    async def dump(self) -> str:
        self._tell("dump")
        return self.stacks

    async def force(self) -> None:
        self._tell("force")
        self.die(Exit.of_process(-9))

    async def suspend(self) -> None:
        self._tell("suspend")
        if self.quiet_in is None:
            await asyncio.get_running_loop().create_future()
        elif self.quiet_in:
            await self.clock.sleep(self.quiet_in)

    async def resume(self) -> None:
        self._tell("resume")

    async def probe(self) -> bool:
        self._tell("probe")
        return self.well

    def usage(self) -> Usage | None:
        return self.used

    def tail(self, lines: int) -> list[str]:
        return ["the last words"][:lines]

    def die(self, how: Exit) -> None:
        if self._end is not None and not self._end.done():
            self._tell("died")
            self._end.set_result(how)

    def _later(self, seconds: float, how: Exit) -> None:
        async def die() -> None:
            if seconds:
                await self.clock.sleep(seconds)
            self.die(how)

        task = asyncio.get_running_loop().create_task(die())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self.log.append(f"{self.name} {what}")


CLEAN = Exit(Ending.EXITED, 0)
CRASH = Exit.of_process(1)


class Stage:
    """A tree on virtual time, and every puppet that was ever made for it."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.clock = VirtualClock()
        self.numbers = Numbers()
        self.tree = Tree(journal, clock=self.clock, metrics=self.numbers)
        self.tree.chance = Random(1)
        self.puppets: dict[str, list[Puppet]] = {}
        self.log: list[str] = []

    def spec(self, name: str, puppet: dict[str, Any] | None = None, **more: Any) -> Spec:
        """A slot whose instances are puppets."""

        def make() -> Puppet:
            body = Puppet(**(puppet or {}), name=name, log=self.log)
            body.clock = self.clock
            self.puppets.setdefault(name, []).append(body)
            return body

        return Spec(name, make, **{"backoff": CALM, "breaker": None, **more})

    def supervisor(self, *specs: Spec, **plan: Any) -> Supervisor:
        return Supervisor(self.tree, specs, Plan(**plan))

    async def running(self, *specs: Spec, **plan: Any) -> Supervisor:
        """A supervisor that has started."""
        supervisor = self.supervisor(*specs, **plan)
        await self.during(supervisor.start())
        return supervisor

    async def during(self, doing: Any, limit_s: float = 10_000) -> Any:
        """Let time pass until it is done."""
        task = asyncio.ensure_future(doing)
        await self.clock.until(task.done, limit_s)
        return task.result()

    def last(self, name: str) -> Puppet:
        return self.puppets[name][-1]

    def made(self, name: str) -> int:
        return len(self.puppets.get(name, []))

    def states(self, instance: str) -> list[str]:
        """The states that an instance has walked, by its journal."""
        return [str(one.target) for one in self.journal.history(instance) if one.target]

    def record(self, instance: str) -> Instance:
        found = fold(self.journal.history(instance))
        assert found is not None
        return found

    def notes(self) -> list[str]:
        return [one.note.name for one in self.journal.read(0) if one.note is not None]
