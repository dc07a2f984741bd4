"""A worker's desk: claims one job and hands it to an executor, as the worker does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from detent import Detent
from detent.app.loading import load
from detent.engine.engine import Engine
from detent.engine.secrets import Owner
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.runtime.context import Context
from detent.runtime.ending import Written, ending
from detent.runtime.executors.api import Ended, Executor, Returned, Run
from detent.runtime.masking import Mask
from detent.stores.api import Stored, Want, WorkerRow
from tests.runtime.process import yard

WORKER = "w1"


class Desk:
    """Runs made from calls of one app."""

    def __init__(self, app: Detent) -> None:
        self.app = app
        self._by = By(Actor.WORKER, WORKER)

    async def run_of(self, name: str, *args: Any, **kwargs: Any) -> Run:
        """A run of a new job of that name, claimed and opened."""
        await self.app.jobs[name].aenqueue(*args, **kwargs)
        return await self.next_of(name)

    async def next_of(self, name: str) -> Run:
        """A run of a job of that name that is there already."""
        engine = await self.app.bridge.reach(self.app.engine())
        stored = await self.app.bridge.reach(self._claimed(engine, name))
        return self.of(engine, stored)

    def of(self, engine: Engine, stored: Stored) -> Run:
        """The run of a claimed job."""
        job = stored.job
        ctx = self.context_of(engine, stored)
        owner = Owner(job.tenant, job.id, stored.body.type)
        opened = engine.secrets.opened(stored.body.payload, owner)
        ctx.heard.mask = Mask(opened.values)
        return Run(stored, ctx, self.app.handlers[stored.body.type], opened, self.app.runs)

    async def report(self, run: Run, ended: Ended) -> None:
        """Let it be known how the run ended."""
        engine = await self.app.bridge.reach(self.app.engine())
        now = engine.store.now()
        change = ending(run.stored, ended, self._by, run.ctx.heard, now)
        [answer] = await self.app.bridge.reach(engine.carry_out([change]))
        assert not isinstance(answer, Refusal)

    def context_of(self, engine: Engine, stored: Stored) -> Context:
        """What a handler of the job sees."""
        return Context(stored, engine, self.app.bridge, self._by, self.app.handlers)

    async def _claimed(self, engine: Engine, name: str) -> Stored:
        now = engine.store.now()
        await engine.store.beat([WorkerRow(WORKER, now + 600_000_000)], now=now)
        made = engine.identity.id
        want = Want(
            command_id=made(),
            by=self._by,
            holder=WORKER,
            leases=(made(),),
            queues=("default",),
            types=(name,),
        )
        [stored] = (await engine.claim(want)).jobs
        return stored


@asynccontextmanager
async def opened(executor: Executor) -> AsyncIterator[Executor]:
    """Closed whatever happens."""
    try:
        yield executor
    finally:
        await executor.close()


def written(folder: Path, text: str) -> tuple[str, Detent]:
    """A program in a file: its reference, and its app, loaded here as a worker does."""
    path = folder / f"jobs_{folder.name}.py"
    head = "from __future__ import annotations\nfrom detent import *\n"
    path.write_text(f"{head}app = Detent('sqlite:///{folder}/detent.db')\n{text}")
    return str(path), load(str(path))


def lines(run: Run) -> list[str]:
    """What the run has said."""
    return [line.text for line in run.ctx.heard.rest(0)]


def value(ended: Ended) -> Any:
    """What it returned."""
    if isinstance(ended, Written):
        return json.loads(ended.text)
    assert isinstance(ended, Returned), ended
    return ended.value


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is no corpse."""
    return not yard.is_gone(pid)
