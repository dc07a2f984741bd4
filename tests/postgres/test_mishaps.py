"""Whatever happens to server and connections: nothing acknowledged is lost, nothing doubled."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from detent import stores
from detent.errors import StoreUnavailable
from detent.stores.api import Line, key_of
from detent.stores.postgres import address
from detent.stores.postgres.pool import Pool
from tests.contract.world import World
from tests.postgres.running import Workers, durable, in_world, nothing_lost_or_doubled, sql
from tools.postgres import Server

pytestmark = pytest.mark.slow
_OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'detent'"
_CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'detent'"
    " AND datname = current_database()"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with durable() as one:
        yield one


@pytest.fixture
def url(server: Server, request: pytest.FixtureRequest) -> str:
    name = f"d{abs(hash(request.node.name))}"
    sql(server.url("postgres"), f"CREATE DATABASE {name}")
    return server.url(name)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server_loses_and_doubles_nothing(
    server: Server, url: str, mode: str
) -> None:
    async def restart(_: Workers) -> None:
        await asyncio.to_thread(server.control, "restart", "-m", mode)

    nothing_lost_or_doubled(url, restart)


def test_connections_that_are_terminated_lose_and_double_nothing(url: str) -> None:
    async def terminate(workers: Workers) -> None:
        for _ in range(5):
            await asyncio.to_thread(sql, url, _CUT)
            await workers.many(5)

    nothing_lost_or_doubled(url, terminate)


def test_a_backend_that_is_killed_takes_the_server_down_and_nothing_with_it(url: str) -> None:
    async def kill(_: Workers) -> None:
        processes = await asyncio.to_thread(sql, url, _OURS)
        os.kill(processes[0][0], signal.SIGKILL)

    nothing_lost_or_doubled(url, kill)


def test_lines_are_appended_once_though_connections_are_terminated(url: str) -> None:
    async def use(world: World) -> None:
        job = await world.push()
        said: list[int] = []
        spoken = asyncio.Semaphore(0)

        async def speak() -> None:
            for number in range(60):
                said.extend(await world.store.append_logs([(key_of(job), Line(number, "x"))]))
                spoken.release()

        async def cut() -> None:
            # After every line that got through, so that the next one is hit wherever it is.
            for _ in range(40):
                await spoken.acquire()
                await asyncio.to_thread(sql, url, _CUT)

        await asyncio.gather(speak(), cut())
        assert said == list(range(1, 61))

    in_world(url, use)


def test_who_waits_hears_of_jobs_again_after_the_line_was_cut(url: str) -> None:
    async def use(world: World) -> None:
        await asyncio.to_thread(sql, url, _CUT)
        async with stores.open(url, clock=world.clock) as other:
            assert (await other.step([world.make.pushed()], now=world.now)).outcomes
        assert await world.store.wait(30.0)

    in_world(url, use)


def test_a_server_that_does_not_come_back_is_called_unavailable() -> None:
    async def use() -> None:
        with durable() as mortal:
            where = address.read(mortal.url("postgres"))
            pool = Pool(where, 1, patience_s=0.3)
            await pool.run(lambda one: one.fetch("about"))
            await asyncio.to_thread(mortal.control, "stop", "-m", "immediate")
            with pytest.raises(StoreUnavailable) as told:
                await pool.run(lambda one: one.fetch("about"))
            assert told.value.retryable
            await pool.close()

    asyncio.run(use())
