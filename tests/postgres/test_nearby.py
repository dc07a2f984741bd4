"""A lone caller sends jobs from its own loop: the same jobs, once each, whatever happens to it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from detent import Detent, stores
from detent.app.job import Job
from detent.stores.postgres import connection, nearby
from detent.stores.postgres.nearby import NAME
from tests.postgres.running import sql
from tests.postgres.server import databases
from tests.waiting import PATIENCE_S, eventually, until

THERE = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
)
_WAITS = f"{THERE} AND wait_event_type = 'Lock'"
_END = f"SELECT pg_terminate_backend(pid) FROM ({THERE}) AS there"  # noqa: S608 - ours
ENOUGH = 40
"""So often somebody must come until a connection is opened, and more often than that."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return databases().of(tmp_path)


@pytest.fixture
def noop(url: str) -> Iterator[Job[..., Any, ..., Any]]:
    app = Detent(url)

    @app.job
    def noop(number: int) -> None:
        """Nothing."""

    yield noop
    app.close()


async def _come(noop: Job[..., Any, ..., Any], url: str) -> int:
    """Come again and again, until there is a connection for it; how often that was."""
    deadline = time.monotonic() + PATIENCE_S
    for number in count(1):
        await noop.aenqueue(number)
        if number >= ENOUGH and there(url):
            # The first who finds it there uses it.
            await noop.aenqueue(0)
            break
        assert time.monotonic() < deadline, "nobody has opened a connection"
    return number + 1


def there(url: str, asked: str = THERE) -> list[int]:
    return [pid for (pid,) in sql(url, asked, NAME)]


def stored(url: str) -> list[int]:
    """How many jobs, events and jobs by the tallies there are."""
    return [
        sql(url, f"SELECT {what}")[0][0]
        for what in (
            "count(*) FROM detent.jobs",
            "count(*) FROM detent.events",
            "coalesce(sum(count), 0)::int FROM detent.tallies WHERE state = 'available'",
        )
    ]


@asynccontextmanager
async def blocked(url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """While nobody can enqueue anything."""
    async with await psycopg.AsyncConnection.connect(url) as one:
        await one.execute("LOCK TABLE detent.tallies IN SHARE MODE")
        yield one


def test_it_is_stored_from_there_and_hangs_up_with_its_loop(
    url: str, noop: Job[..., Any, ..., Any]
) -> None:
    came = asyncio.run(_come(noop, url))
    assert stored(url) == [came] * 3
    eventually(lambda: not there(url), "its connection is closed with its loop")
    # A second loop has one of its own.
    came += asyncio.run(_come(noop, url))
    assert stored(url) == [came] * 3


def test_both_ways_leave_the_same_rows(url: str, noop: Job[..., Any, ..., Any]) -> None:
    asyncio.run(_come(noop, url))
    told = "(tenant, version, name, source, target, actor, actor_id, kind, rest::jsonb - 'place')"
    assert sql(url, f"SELECT count(DISTINCT {told}) FROM detent.events") == [(1,)]  # noqa: S608
    keys = (
        "'id', 'place', 'payload', 'created_at', 'state_at', 'last_at', 'enqueued_at', 'ready_at'"
    )
    jobs = f"SELECT count(DISTINCT to_jsonb(j) - ARRAY[{keys}]) FROM detent.jobs AS j"  # noqa: S608
    assert sql(url, jobs) == [(1,)]


def test_company_shares_commits(url: str, noop: Job[..., Any, ..., Any]) -> None:
    async def many() -> int:
        came = await _come(noop, url)
        await asyncio.gather(*(noop.aenqueue(number) for number in range(200)))
        return came

    came = asyncio.run(many())
    assert stored(url) == [came + 200] * 3
    [(commits,)] = sql(url, "SELECT count(DISTINCT xid) FROM detent.events")
    assert commits < came + 100


def test_a_cut_connection_costs_nobody_a_job(url: str, noop: Job[..., Any, ..., Any]) -> None:
    async def cut() -> int:
        came = await _come(noop, url)
        sql(url, _END, NAME)
        await noop.aenqueue(0)
        return came + 1

    came = asyncio.run(cut())
    assert stored(url) == [came] * 3


def test_after_a_cut_there_is_another_before_long(
    url: str, noop: Job[..., Any, ..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearby, "_AGAIN_S", 0.0)

    async def again() -> int:
        came = await _come(noop, url)
        for _ in range(3):
            [before] = there(url)
            sql(url, _END, NAME)
            came += await _come(noop, url)
            # Whatever kept the one before it is gone, and leaves the new one alone.
            gc.collect()
            await noop.aenqueue(0)
            came += 1
            [after] = there(url)
            assert after != before
        return came

    came = asyncio.run(again())
    assert stored(url) == [came] * 3


def test_who_stays_away_is_hung_up_on(
    url: str, noop: Job[..., Any, ..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearby, "_IDLE_S", 0.05)

    async def stay_away() -> int:
        came = await _come(noop, url)
        await until(lambda: not there(url), "nobody uses it")
        return came + await _come(noop, url)

    came = asyncio.run(stay_away())
    assert stored(url) == [came] * 3


def test_cut_in_the_middle_it_goes_the_other_way(url: str, noop: Job[..., Any, ..., Any]) -> None:
    async def cut() -> int:
        came = await _come(noop, url)
        async with blocked(url):
            sending = asyncio.create_task(noop.aenqueue(0))
            await until(lambda: there(url, _WAITS), "it waits for the table")
            sql(url, _END, NAME)
        await sending
        return came + 1

    came = asyncio.run(cut())
    assert stored(url) == [came] * 3


def test_who_is_not_answered_goes_the_other_way_before_long(
    url: str, noop: Job[..., Any, ..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would be told only after twice as long that a server stands still."""
    monkeypatch.setattr(nearby, "_ANSWER_S", 0.2)
    usual = connection.open_connection.__kwdefaults__
    assert usual is not None
    monkeypatch.setitem(usual, "answer_s", 300.0)
    monkeypatch.setitem(connection._SETTINGS, "lock_timeout", "0")  # noqa: SLF001

    async def wait() -> int:
        came = await _come(noop, url)
        async with blocked(url):
            sending = asyncio.create_task(noop.aenqueue(0))
            await until(lambda: there(url, _WAITS), "it waits for the table")
            await until(lambda: sql(url, _WAITS, "detent"), "and so does the other way")
        await sending
        return came + 1

    came = asyncio.run(wait())
    assert stored(url) == [came] * 3


def test_who_is_called_off_leaves_nothing_behind(url: str, noop: Job[..., Any, ..., Any]) -> None:
    async def leave() -> int:
        came = await _come(noop, url)
        async with blocked(url):
            sending = asyncio.create_task(noop.aenqueue(0))
            await until(lambda: there(url, _WAITS), "it waits for the table")
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await until(lambda: not there(url), "it has hung up")
        await noop.aenqueue(0)
        return came + 1

    came = asyncio.run(leave())
    assert stored(url) == [came] * 3


def test_whoever_waits_for_jobs_hears_of_them(url: str, noop: Job[..., Any, ..., Any]) -> None:
    async def hear() -> None:
        await _come(noop, url)
        async with stores.open(url) as store:
            seen = (await store.step((), now=store.now())).claimed.seen
            waiting = asyncio.create_task(store.wait(0.9, seen))
            await asyncio.sleep(0)
            await noop.aenqueue(0)
            assert await waiting, "it heard nothing, and would have looked only a second later"

    asyncio.run(hear())


def test_closing_the_app_hangs_up_in_all_loops(url: str) -> None:
    app = Detent(url)

    @app.job
    def noop(number: int) -> None:
        """Nothing."""

    async def close() -> None:
        await _come(noop, url)
        await app.aclose()
        await until(lambda: not there(url), "its connection is closed with the store")

    asyncio.run(close())
