"""A database that stands still longer than a lease: nobody could renew, so nobody is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess

from detent import stores
from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.enqueueing import Enqueued
from detent.lifecycle.profile import HEARTBEAT_LEASE_US
from detent.stores.api import Store, WorkerRow, key_of
from tests.contract.making import SECOND, USER, Clock, Maker
from tests.postgres.running import durable
from tools.postgres import Server


def signal_all(server: Server, what: signal.Signals) -> None:
    """To the first process of the server and all that it has started."""
    listed = ["ps", "-o", "pid=", "--ppid", str(server.process)]
    children = subprocess.run(listed, capture_output=True, text=True, check=True)  # noqa: S603
    for process in [server.process, *map(int, children.stdout.split())]:
        os.kill(process, what)


async def beat(store: Store, clock: Clock) -> None:
    row = WorkerRow("w1", clock.now + HEARTBEAT_LEASE_US)
    assert list(await store.beat([row], now=clock.now)) == [True]


async def stand_still(server: Server, store: Store, clock: Clock) -> None:
    """The worker wants to renew and cannot, until its time is long over."""
    signal_all(server, signal.SIGSTOP)
    renewing = asyncio.ensure_future(beat(store, clock))
    clock.move(4 * HEARTBEAT_LEASE_US)
    done, _ = await asyncio.wait([renewing], timeout=0.2)
    assert not done, "the database answered although it was stopped"
    signal_all(server, signal.SIGCONT)
    await renewing


def test_no_healthy_job_is_declared_lost_when_the_database_stood_still() -> None:
    async def run(server: Server) -> None:
        clock = Clock()
        make = Maker(clock)
        async with stores.open(server.url("postgres"), clock=clock) as store:
            engine = Engine(store)
            [made] = await engine.enqueue([Ask(type="x")], USER)
            assert isinstance(made, Enqueued)
            await beat(store, clock)
            [taken] = (await engine.claim(make.want(1))).jobs
            await engine.upkeep.turn()
            await stand_still(server, store, clock)
            # What was renewed was renewed too late; upkeep looks before the worker can beat again.
            assert (await engine.upkeep.turn()).declared_lost == 0
            for _ in range(20):
                await beat(store, clock)
                clock.move(SECOND)
                assert (await engine.upkeep.turn()).declared_lost == 0
            [stored] = await store.get([key_of(taken.job)])
            assert stored is not None
            assert stored.job == taken.job, "a healthy job was touched"

    with durable() as server:
        stores.run_migrations(server.url("postgres"))
        asyncio.run(run(server))
