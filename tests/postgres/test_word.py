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
from tests.postgres.running import in_world
from tests.postgres.server import databases


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
    assert [crier.word(), crier.word()] == ["me", ""]
    monkeypatch.setattr(listening_to, "_QUIET_S", 0.0)
    assert crier.word() == "me"
    crier.cry()
    assert crier.word() == "", "what is waiting to be sent says it as well"
    await crier.stop()
    assert crier.word() == "me"
    monkeypatch.setattr(listening_to, "_SLOW_S", 0.0)
    crier.went_along()
    assert crier.word() == "", "commits that carry word wait for each other"
    await pool.close()
