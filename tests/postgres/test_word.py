"""Other processes hear of a job that came, by its own commit or just after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from detent.stores.postgres import address
from detent.stores.postgres import listening as listening_to
from detent.stores.postgres.listening import Crier
from detent.stores.postgres.pool import Pool
from tests.contract.world import World
from tests.postgres.running import in_world, sql
from tests.postgres.server import databases
from tests.waiting import until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return databases().of(tmp_path)


@pytest.fixture
def listening(url: str) -> psycopg.Connection:
    one = psycopg.connect(url, autocommit=True)
    one.execute("LISTEN detent")
    return one


def heard(listening: psycopg.Connection) -> int:
    """How many words came; it waits for the first."""
    return len(list(listening.notifies(timeout=10, stop_after=1)))


def test_every_job_is_heard_of_however_soon_after_another(
    url: str, listening: psycopg.Connection
) -> None:
    async def use(world: World) -> None:
        for _ in range(30):
            await world.push()
            assert await asyncio.to_thread(heard, listening) == 1
        # One that is not due yet is nothing that anybody could claim.
        await world.push(run_at=world.now + 60_000_000)
        assert list(listening.notifies(timeout=0.2, stop_after=1)) == []

    with listening:
        in_world(url, use)


async def test_word_goes_along_with_a_lone_job_and_not_too_often(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(address.read(url), 1)
    crier = Crier(pool, "me")
    first, second = crier.word(), crier.word()
    assert first is not None
    assert (first.name, second) == ("me", None)
    monkeypatch.setattr(listening_to, "_ALONG_S", 0.0)
    third = crier.word()
    assert third is not None
    monkeypatch.setattr(listening_to, "_SLOW_S", 0.0)
    crier.went_along(third)
    assert crier.word() is None, "commits that carry word wait for each other"
    await pool.close()


@pytest.mark.parametrize("goes_along", [True, False])
async def test_word_that_a_lone_job_took_along_is_not_sent_again(
    url: str, listening: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, goes_along: bool
) -> None:
    monkeypatch.setattr(listening_to, "_ALONG_S", 0.0)
    monkeypatch.setattr(listening_to, "_PAUSE_S", 0.2)
    pool = Pool(address.read(url), 1)
    crier = Crier(pool, "me")
    assert crier.word() is not None
    crier.cry_from_afar()
    taken = crier.word()
    assert taken is not None
    if goes_along:
        crier.went_along(taken)
    await asyncio.sleep(0)
    await crier.stop()
    await pool.close()
    with listening:
        told = list(listening.notifies(timeout=0.2, stop_after=1))
    assert len(told) == (0 if goes_along else 1)


def test_who_only_enqueues_does_not_listen(url: str) -> None:
    """Every word would wake it for nothing."""
    listens = "SELECT count(*) FROM pg_stat_activity WHERE query ~ '^LISTEN'"

    async def use(world: World) -> None:
        await world.push()
        assert sql(url, listens) == [(0,)]
        await world.claim()
        await until(lambda: sql(url, listens) == [(1,)], "who claims listens")

    in_world(url, use)
