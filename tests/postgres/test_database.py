"""What the database itself refuses, whoever asks: with plain SQL, past all of our code."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.stores.api import Retention
from tests.contract.flowing import job
from tests.contract.making import USER
from tests.contract.world import HOUR, World
from tests.postgres.running import in_world, sql
from tests.postgres.server import databases

_FORGOTTEN = "DELETE FROM detent.jobs WHERE ended_at IS NOT NULL"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a live job, an ended one, one whose end is not sealed, and a live workflow."""
    found = databases().of(tmp_path)
    in_world(found, _fill)
    return found


async def _fill(world: World) -> None:
    await world.push(id="live")
    ended, fresh = await world.push(id="ended"), await world.push(id="fresh")
    await world.make_flow("w", w.chain("a"), job(world, "a"))
    await world.do(ended, j.Cancel(), USER)
    await world.store.seal()
    await world.do(fresh, j.Cancel(), USER)


@pytest.mark.parametrize("retention", ["on", "off"])
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM detent.events WHERE record = 'live'",
        "DELETE FROM detent.events WHERE record = 'fresh' AND version = 2",
        "DELETE FROM detent.events",
        "UPDATE detent.events SET at = 1 WHERE record = 'ended'",
        "TRUNCATE detent.events",
    ],
)
def test_nobody_changes_or_deletes_events_that_must_stay(
    url: str, statement: str, retention: str
) -> None:
    with psycopg.connect(url) as one:
        one.execute(f"SET LOCAL detent.retention = '{retention}'".encode())
        one.execute(_FORGOTTEN)
        with pytest.raises(psycopg.errors.RaiseException, match="event"):
            one.execute(statement.encode())


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM detent.jobs WHERE id = 'live'",
        "TRUNCATE detent.jobs",
        "DELETE FROM detent.workflows",
        "DELETE FROM detent.steps",
    ],
)
def test_live_records_are_not_deleted(url: str, statement: str) -> None:
    with psycopg.connect(url) as one:
        one.execute("SET LOCAL detent.retention = 'on'")
        with pytest.raises(psycopg.errors.RaiseException, match="ended"):
            one.execute(statement.encode())


def test_a_position_that_is_taken_away_first_does_not_help(url: str) -> None:
    with psycopg.connect(url) as one:
        one.execute("SET LOCAL detent.retention = 'on'")
        one.execute(_FORGOTTEN)
        one.execute("DELETE FROM detent.feed")
        with pytest.raises(psycopg.errors.RaiseException, match="sealed"):
            one.execute("DELETE FROM detent.events WHERE record = 'ended'")


def test_retention_forgets_what_has_ended_and_is_sealed(url: str) -> None:
    async def use(world: World) -> None:
        world.clock.move(HOUR)
        assert await world.prune(Retention("cancelled", world.now)) == 1

    in_world(url, use)
    assert sql(url, "SELECT count(*) FROM detent.events WHERE record = 'ended'") == [(0,)]
    assert sql(url, "SELECT count(*) FROM detent.feed WHERE record = 'ended'") == [(0,)]
