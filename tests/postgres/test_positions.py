"""Positions of events that are gone: databases in which older code has left some are mended."""

from __future__ import annotations

import psycopg
import pytest

from detent.errors import StoreError
from detent.stores.postgres.statements import MIGRATIONS
from tests.contract.living import life, whole
from tests.contract.world import HOUR, World
from tests.postgres.running import in_world, sql
from tests.postgres.server import databases

_FED = "SELECT pos, record FROM detent.feed ORDER BY pos"
_BACK = """
    DROP TRIGGER positions_of_workers_go ON detent.events;
    DROP FUNCTION detent.forget_position()
"""
_FORGET = """
    SET LOCAL detent.retention = 'on';
    DELETE FROM detent.instances WHERE id LIKE 'gone%';
    DELETE FROM detent.events WHERE record LIKE 'gone%'
"""


def forget(url: str) -> None:
    """As code did that knew nothing of positions."""
    with psycopg.connect(url) as one:
        one.execute(_FORGET)


def mend(url: str) -> None:
    """What the migration does that is about them."""
    [text] = [one.sql for one in MIGRATIONS if one.name == "positions"]
    sql(url, text)


@pytest.fixture
def url() -> str:
    """A store as older code has left it: two workers are forgotten, their positions are not."""
    found = databases().kept()
    in_world(found, _fill)
    sql(found, _BACK)
    forget(found)
    return found


async def _fill(world: World) -> None:
    await world.push(id="job")
    for name in ("gone-1", "stays", "gone-2"):
        await world.store.ship([life(whole(name, world.now))], now=world.now)
    while await world.store.seal():
        pass


async def _comes_again(world: World) -> None:
    world.clock.move(HOUR)
    assert await world.store.ship([life(whole("gone-1", world.now))], now=world.now) == [True]
    fed = [one.event.record for one in await world.store.feed()]
    assert fed == ["job", *["stays"] * 5, *["gone-1"] * 5]


def test_what_is_left_of_forgotten_workers_is_removed_and_nothing_else(url: str) -> None:
    assert len(sql(url, _FED)) == 16
    mend(url)
    assert sql(url, _FED) == [(1, "job"), *((pos, "stays") for pos in range(7, 12))]
    in_world(url, _comes_again)


def test_a_feed_that_has_stopped_already_goes_on(url: str) -> None:
    async def stop(world: World) -> None:
        with pytest.raises(StoreError):
            await _comes_again(world)

    with pytest.raises(StoreError):
        in_world(url, stop)
    mend(url)

    async def read(world: World) -> None:
        fed = [one.event.record for one in await world.store.feed()]
        assert fed == ["job", *["stays"] * 5, *["gone-1"] * 5]

    in_world(url, read)


def test_older_code_leaves_nothing_more(url: str) -> None:
    mend(url)
    in_world(url, _comes_again)

    async def seal(world: World) -> None:
        while await world.store.seal():
            pass

    in_world(url, seal)
    forget(url)
    assert {record for _, record in sql(url, _FED)} == {"job", "stays"}
    in_world(url, _comes_again)
