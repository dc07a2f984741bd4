"""A process that never stops writing: `python -m tests.engine.writer <url>`.

It does everything that a check could take for damage when it looks at the wrong moment: claims over
the wire and their ends, moves between queues, several events in one commit, seals. It says a word
after every round.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from detent import stores
from detent.lifecycle import job as j
from detent.stores.api import Store, Unit
from tests.contract.making import SECOND, USER, WORKER, Clock, Maker

ROUND = 8


async def write(url: str) -> None:
    """Until somebody ends this process."""
    make = Maker(Clock())
    async with stores.open(url) as store:
        for number in count():
            await play(store, make)
            if number % 3 == 0:
                await store.seal(limit=50)
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


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
