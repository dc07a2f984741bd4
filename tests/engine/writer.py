"""A process that never stops writing: `python -m tests.engine.writer <url>`.

It does everything that a check could take for damage when it looks at the wrong moment: claims over
the wire and their ends, moves between queues, several events in one commit, workflows from the
first to the last job, seals, and retention that takes most of it away again soon after. It says a
word after every round.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from detent import stores
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.stores.api import Retention, Store, Stored, Unit
from tests.contract.making import SECOND, USER, WORKER, Clock, Maker

ROUND = 8
STEPS = ("one", "two")


async def write(url: str) -> None:
    """Until somebody ends this process."""
    make = Maker(Clock())
    async with stores.open(url) as store:
        for number in count():
            make.clock.move(1)
            await play(store, make)
            await flow(store, make, number)
            if number % 3 == 0:
                await store.seal(limit=100)
            if number % 5 == 0:
                await forget(store, make)
            sys.stdout.write("round\n")
            sys.stdout.flush()


async def play(store: Store, make: Maker) -> None:
    """New jobs, some claimed over the wire and ended one way or another, some moved."""
    units = [make.pushed(queue=queue) for queue in ("default", "slow") for _ in range(ROUND)]
    want = make.want(ROUND, wire=True, lease_us=SECOND)
    stepped = await store.step(units, now=make.now, want=want)
    moves = [make.doing(unit.new[0].job, j.Move("other"), USER) for unit in units[ROUND::2]]
    ends = [ended(make, one.job, number) for number, one in enumerate(stepped.claimed.jobs)]
    await store.step([*moves, *ends], now=make.now)


def ended(make: Maker, job: j.Job, number: int) -> Unit:
    """Completed, handed back (two events in one commit) or failed."""
    lease = job.lease
    commands = (j.Complete(lease=lease), j.HandBack(lease=lease), j.Fail(lease=lease, code="boom"))
    return make.doing(job, commands[number % 3], WORKER, store={"lease": lease})


async def flow(store: Store, make: Maker, number: int) -> None:
    """A new workflow, and a piece of the work in those that there are."""
    steps = [f"{step}-{number}" for step in STEPS]
    new = [
        make.new(workflow=f"flow-{number}", step=step, queue="flows")
        for step in steps
        for _ in range(3)
    ]
    command = w.Make(id=f"flow-{number}", steps=w.chain(*steps), jobs=dict.fromkeys(steps, 3))
    unit = make.flowing(None, command, *new)
    want = make.want(5, wire=True, lease_us=SECOND, queues=("flows",))
    stepped = await store.step([unit], now=make.now, want=want)
    for at, claimed in enumerate(stepped.claimed.jobs):
        await store.step([flowed(make, claimed, at)], now=make.now)


def flowed(make: Maker, claimed: Stored, number: int) -> Unit:
    """Mostly completed, so that steps open and workflows end."""
    job, lease = claimed.job, claimed.job.lease
    command = j.HandBack(lease=lease) if number == 1 else j.Complete(lease=lease)
    return make.doing(job, command, WORKER, store={"lease": lease})


async def forget(store: Store, make: Maker) -> None:
    """Let go of what is sealed, a few at a time, so that it goes on while somebody looks."""
    await store.prune([Retention("completed", make.now - 5)], now=make.now, limit=20)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
