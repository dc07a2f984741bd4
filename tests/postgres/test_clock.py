"""A clock of the server that is set: everybody goes by it, whoever came before or comes after."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from detent import stores
from detent.stores.postgres import server
from tests.postgres.running import sql
from tests.postgres.server import databases
from tests.waiting import until

HOUR_S = 3_600
# What the database calls the time is what it finds first under that name.
SETTABLE = """
CREATE SCHEMA mine;
CREATE TABLE mine.clock AS SELECT interval '0' AS ahead;
CREATE FUNCTION mine.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
$$SELECT pg_catalog.clock_timestamp() + (SELECT ahead FROM mine.clock)$$;
"""


@pytest.fixture
def url() -> str:
    found = databases().kept()
    sql(found, SETTABLE)
    sql(
        found,
        f"ALTER DATABASE {found.partition('?')[0].rpartition('/')[2]}"
        " SET search_path = mine, pg_catalog",
    )
    return found


def set_by(url: str, seconds: int) -> None:
    sql(url, "UPDATE mine.clock SET ahead = make_interval(secs => %s)", seconds)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
async def test_whoever_is_there_already_hears_of_it(
    url: str, step_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with stores.open(url) as store:

        def ahead_s() -> float:
            return store.now() / 1_000_000 - time.time()

        assert abs(ahead_s()) < 5
        await asyncio.to_thread(set_by, url, step_s)
        await until(lambda: abs(ahead_s() - step_s) < 5)
    [told] = [one for one in caplog.records if one.name == server.__name__]
    assert "the clock of PostgreSQL has moved by" in told.getMessage()
    assert told.args == (pytest.approx(step_s, abs=5),)


async def test_a_clock_that_was_given_is_nobody_elses(tmp_path: Path) -> None:
    async with stores.open(databases().of(tmp_path), clock=lambda: 7) as store:
        assert store.now() == 7
