"""A process that does all that a store can: pairs, workflows, small records, seals, retention.

`python -m tests.sqlite.toil <url>` does a few rounds of it and ends. Without an address it makes
others: for every name and address on a line of standard input it forks a child that writes until
somebody kills it, and says which and when it has died. Forking costs nothing beside starting
Python, so that very many can be killed. All speak on one standard output, in whole lines.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count

from detent import stores
from detent.errors import StoreError
from detent.lifecycle import workflow as w
from detent.stores.api import Committed, Record, Retention, Store, Unit
from detent.stores.sqlite import SqliteStore
from tests.contract.making import SECOND
from tests.sqlite.child import Own, register, say
from tests.sqlite.ways import lone, mould

QUEUES = ("brief", "default", "flows")
LONE = mould(queue="lone")


class Toiler(Own):
    """Makes what must never be stored in part."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._flows = count(1)

    def brief(self) -> Unit:
        """Two jobs that retention will take soon."""
        command_id = self.command_id()
        new = [self.new(id=f"{command_id}-{x}", queue="brief", command_id=command_id) for x in "ab"]
        return self.inserting(*new)

    def flow(self) -> Unit:
        """A workflow of two steps, each with two jobs, and a small record: all or nothing."""
        name, command_id = f"{self.name}-flow-{next(self._flows)}", self.command_id()
        steps = [f"{name}-{step}" for step in ("x", "y")]
        new = [
            self.new(
                id=f"{step}{n}", queue="flows", workflow=name, step=step, command_id=command_id
            )
            for step in steps
            for n in (1, 2)
        ]
        command = w.Make(id=name, steps=w.chain(*steps), jobs=dict.fromkeys(steps, 2))
        puts = (Record("flow", name, 1, "{}"),)
        return self.flowing(None, command, *new, command_id=command_id, puts=puts)


async def toil(url: str, name: str) -> None:
    """Do everything at once, until somebody ends it."""
    make = Toiler(name)
    async with stores.open(url) as store:
        await register(store, make)
        await asyncio.gather(push(store, make), flow(store, make), work(store, make))


async def commit(store: Store, make: Toiler, *units: Unit) -> None:
    stepped = await store.step(units, now=make.now)
    assert stepped.outcomes == (Committed(),) * len(units), stepped


async def push(store: Store, make: Toiler) -> None:
    """Pairs that stay, and jobs that do not; what is done with them is sealed and forgotten."""
    while True:
        await push_once(store, make)


async def push_once(store: Store, make: Toiler) -> None:
    pair = make.pair()
    await commit(store, make, pair, make.brief())
    say(pushed=[new.job.id for new in pair.new])
    bear(store, make)
    await store.seal(limit=100)
    make.clock.move(1)
    gone = await store.prune([Retention("completed", make.now, queue="brief")], now=make.now)
    say(pruned=gone)


def bear(store: Store, make: Toiler) -> None:
    """A job by itself, written where we are if nobody else writes."""
    assert isinstance(store, SqliteStore)
    name = f"{make.command_id()}-lone"
    stepped = store.step_here(lone(name, make.now, of=LONE), now=make.now)
    assert stepped.outcomes == (Committed(),), stepped
    say(bore=[name])


async def flow(store: Store, make: Toiler) -> None:
    """Workflows, and a small record that counts them."""
    for version in count(1):
        await flow_once(store, make, version)


async def flow_once(store: Store, make: Toiler, version: int) -> None:
    name, unit = f"{make.name}-count", make.flow()
    counts = Record("count", name, version, str(version), make.now + SECOND)
    await commit(store, make, unit, Unit(make.command_id(), puts=(counts,)))
    say(flowed=[new.job.id for new in unit.new], counted={name: version})


async def work(store: Store, make: Toiler) -> None:
    """Claim and complete, in one step."""
    units: list[Unit] = []
    while True:
        units = await work_once(store, make, units)


async def work_once(store: Store, make: Toiler, units: list[Unit]) -> list[Unit]:
    want = make.want(4, holder=make.name, queues=QUEUES)
    stepped = await store.step(units, now=make.now, want=want)
    assert stepped.outcomes == (Committed(),) * len(units), stepped
    say(completed=[unit.moves[0].job.id for unit in units])
    return make.completing(stepped.claimed)


async def do_some(url: str, rounds: int = 4) -> None:
    """A bit of everything, one after the other, and an end; whatever is refused is said."""
    make, units = Toiler("t"), list[Unit]()
    try:
        async with stores.open(url) as store:
            await register(store, make)
            for version in range(1, rounds + 1):
                await push_once(store, make)
                await flow_once(store, make, version)
                units = await work_once(store, make, units)
    except StoreError as error:
        say(refused=error.code)


def main() -> None:
    """A child for every line."""
    for line in sys.stdin:
        url, name = line.split()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            asyncio.run(toil(url, name))
        say(born=pid)
        _, status = os.waitpid(pid, 0)
        say(died=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(do_some(sys.argv[1]))
    else:
        main()
