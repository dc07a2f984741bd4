"""A process of its own that uses a store: `python -m tests.sqlite.child <what> <url> <name> ...`.

It says what it did in JSON lines on standard output, each only after the store has acknowledged it,
and waits for a line on standard input where several must begin at the same moment.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from detent import stores
from detent.errors import DetentError
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import Claimed, Committed, Store, Unit, WorkerRow
from detent.stores.sqlite import SqliteStore
from detent.stores.sqlite.place import path_of
from detent.stores.sqlite.transaction import Transaction
from tests.contract.making import SECOND, Clock, Maker
from tests.sqlite.ways import lone

FOREVER = 1_000_000 * SECOND


class Own(Maker):
    """Ids that carry the name of this process, so that no two processes make the same."""

    def __init__(self, name: str) -> None:
        super().__init__(Clock())
        self.name = name
        self._numbers = count(1)

    def command_id(self) -> str:
        return f"{self.name}-{next(self._numbers):06}"

    def pair(self) -> Unit:
        """Two jobs in one unit: both are stored, or none."""
        number = next(self._numbers)
        command = self.command_id()
        new = [self.new(id=f"{self.name}-{number:06}-{x}", command_id=command) for x in "ab"]
        return self.inserting(*new)

    def completing(self, claimed: Claimed) -> list[Unit]:
        """What a worker of no patience says about its jobs."""
        by = By(Actor.WORKER, self.name)
        return [
            self.doing(one.job, j.Complete(lease=one.job.lease), by, store={"lease": one.job.lease})
            for one in claimed.jobs
        ]


def say(**facts: Any) -> None:
    sys.stdout.write(f"{json.dumps(facts)}\n")
    sys.stdout.flush()


def begin_together() -> None:
    say(ready=True)
    sys.stdin.readline()


async def push(store: Store, make: Own) -> None:
    unit = make.pair()
    stepped = await store.step([unit], now=make.now)
    assert stepped.outcomes == (Committed(),), stepped
    say(pushed=[new.job.id for new in unit.new])


async def register(store: Store, make: Own) -> None:
    assert await store.beat([WorkerRow(make.name, make.now + FOREVER)], now=make.now) == [True]


# --- what a process can be asked to do ------------------------------------------------------------


async def hammer(url: str, name: str, pairs: str) -> None:
    """Push as told, then work until there is nothing left in the whole store."""
    make, took = Own(name), []
    async with stores.open(url) as store:
        begin_together()
        await register(store, make)
        for _ in range(int(pairs)):
            began = time.perf_counter()
            await push(store, make)
            took.append(time.perf_counter() - began)
        units: list[Unit] = []
        while units or await is_unfinished(store):
            began = time.perf_counter()
            want = make.want(5, holder=name)
            stepped = await store.step(units, now=make.now, want=want)
            took.append(time.perf_counter() - began)
            assert all(one == Committed() for one in stepped.outcomes), stepped
            say(completed=[unit.moves[0].job.id for unit in units])
            units = make.completing(stepped.claimed)
    say(took=took)


async def is_unfinished(store: Store) -> bool:
    return any(one.state != "completed" for one in await store.counts())


async def write(url: str, name: str) -> None:
    """Push and complete for ever; somebody will end it."""
    make = Own(name)
    async with stores.open(url) as store:
        await register(store, make)
        say(ready=True)
        await asyncio.gather(*(push_on(store, make) for _ in range(4)), work_on(store, make))


async def push_on(store: Store, make: Own) -> None:
    while True:
        await push(store, make)


async def work_on(store: Store, make: Own) -> None:
    units: list[Unit] = []
    while True:
        want = make.want(4, holder=make.name)
        stepped = await store.step(units, now=make.now, want=want)
        say(completed=[unit.moves[0].job.id for unit in units])
        units = make.completing(stepped.claimed)


async def open_at_once(url: str, name: str) -> None:
    """Open what may not exist yet, together with somebody else."""
    begin_together()
    make = Own(name)
    async with stores.open(url) as store:
        await push(store, make)


async def outgrow(url: str, name: str) -> None:
    """Go on writing after the system refuses to let any file grow."""
    make = Own(name)
    async with stores.open(url) as store:
        await push(store, make)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        for _ in range(3):
            await until_refused(store, make)


async def until_refused(store: Store, make: Own) -> None:
    try:
        while True:
            await push(store, make)
    except DetentError as error:
        say(refused=error.code)


async def stop_inside(url: str, name: str) -> None:
    """Be stopped in the middle of a transaction, and go on when somebody says so."""
    make = Own(name)
    store = SqliteStore(path_of(url), make.clock)

    def stop(tx: Transaction) -> list[str]:
        unit = make.pair()
        tx.commit([unit], make.now)
        os.kill(os.getpid(), signal.SIGSTOP)
        return [new.job.id for new in unit.new]

    async with store:
        begin_together()
        await push(store, make)
        say(pushed=await store._writing().do(stop))  # noqa: SLF001 - only there is it our turn
        await push(store, make)


async def insist(url: str, name: str) -> None:
    """Push some jobs whatever happens, and say everything that happens."""
    make = Own(name)
    try:
        async with stores.open(url) as store:
            for _ in range(20):
                await push_or_say_why_not(store, make)
    except DetentError as error:
        say(unopened=error.code)


async def insist_alone(url: str, name: str) -> None:
    """The same by a caller that writes one job after the other by itself."""
    make = Own(name)
    try:
        async with stores.open(url) as store:
            assert isinstance(store, SqliteStore)
            for number in range(40):
                try:
                    store.step_here(lone(f"{name}-{number}", make.now), now=make.now)
                    say(pushed=[f"{name}-{number}"])
                except DetentError as error:
                    say(refused=error.code)
    except DetentError as error:
        say(unopened=error.code)


async def bear_many(url: str, name: str) -> None:
    """One job after the other, written by ourselves; others do the same to the same file."""
    make = Own(name)
    async with stores.open(url) as store:
        assert isinstance(store, SqliteStore)
        for number in range(100):
            births = lone(f"{name}-{number}", make.now)
            assert store.step_here(births, now=make.now).outcomes == (Committed(),)
    say(bore=100)


async def fork_beside(url: str, name: str) -> None:
    """Fork while a thread writes by itself; the children may not write with what they got."""
    make, numbers, is_over = Own(name), count(1), threading.Event()
    async with stores.open(url) as store:
        assert isinstance(store, SqliteStore)

        def bear() -> int:
            stepped = store.step_here(lone(f"{name}-{next(numbers)}", make.now), now=make.now)
            assert stepped.outcomes == (Committed(),)
            return 1

        def many() -> int:
            return sum(bear() for _ in iter(is_over.is_set, True))

        bearing = asyncio.get_running_loop().run_in_executor(None, many)
        for _ in range(5):
            child = os.fork()
            if child == 0:
                try:
                    bear()
                except DetentError as error:
                    say(refused=error.code)
                os._exit(0)
            await asyncio.to_thread(os.waitpid, child, 0)
        is_over.set()
        say(bore=await bearing)


async def push_or_say_why_not(store: Store, make: Own) -> None:
    try:
        await push(store, make)
    except DetentError as error:
        say(refused=error.code)


async def use_after_fork(url: str, name: str) -> None:
    """Use in a child what the parent opened."""
    make = Own(name)
    async with stores.open(url) as store:
        await push(store, make)
        child = os.fork()
        if child == 0:
            await until_refused(store, make)
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        await push(store, make)


TASKS: dict[str, Callable[..., Awaitable[None]]] = {
    "hammer": hammer,
    "write": write,
    "open_at_once": open_at_once,
    "outgrow": outgrow,
    "stop_inside": stop_inside,
    "insist": insist,
    "insist_alone": insist_alone,
    "bear_many": bear_many,
    "fork_beside": fork_beside,
    "use_after_fork": use_after_fork,
}


async def main(what: str, *args: str) -> None:
    await TASKS[what](*args)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
