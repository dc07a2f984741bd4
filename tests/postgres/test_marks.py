"""Claims beside an old snapshot: marks pass over what is dead, and hide nothing for long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from detent import stores
from detent.lifecycle import job as j
from detent.stores.postgres import address
from detent.stores.postgres.claiming import asked
from detent.stores.postgres.connection import open_connection
from detent.stores.postgres.marks import KEPT_S, NO_MARKS, Marks, Position, told_of
from detent.stores.postgres.statements import SQL
from detent.stores.postgres.store import PostgresStore
from tests.contract.making import Clock, Maker
from tests.contract.world import World
from tests.postgres.running import sql
from tests.postgres.server import databases

DEAD = 3_000


class Watch:
    """A clock for marks that goes only when it is told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def url(tmp_path: Path) -> str:
    return databases().of(tmp_path)


@pytest.fixture
def fresh() -> str:
    """A database of one's own: what other tests have left dead in theirs would be counted too."""
    return databases().kept()


@pytest.fixture
def old(fresh: str) -> Iterator[psycopg.Connection]:
    """Somebody's report, begun before anything was claimed and not over yet."""
    with psycopg.connect(fresh) as one:
        one.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        one.execute("SELECT count(*) FROM detent.jobs")
        yield one
        one.rollback()


def in_slow_world(url: str, test: Callable[[World, Watch], Awaitable[None]]) -> None:
    """Run a test in a store to which every claim seems slow."""

    async def run() -> None:
        clock, watch = Clock(), Watch()
        where = address.read(url)
        async with PostgresStore(where, clock, Marks(slow_s=-1.0, clock=watch)) as store:
            await test(World(store, clock), watch)

    asyncio.run(run())


async def first_of(world: World, number: int = 1) -> list[str]:
    return [stored.job.id for stored in await world.claim(number)]


# --- what a claim touches ---------------------------------------------------------------------


def claimed_away(url: str, number: int) -> tuple[int, Position]:
    """So many jobs are taken by somebody else; the lane they stood in, and the last of them."""
    text = (
        "UPDATE detent.jobs SET state = 'active', lease = id, holder = 'x' WHERE id IN ("
        " SELECT id FROM detent.jobs WHERE state = 'available' ORDER BY place LIMIT %s"
        ") RETURNING lane, ~priority, place, id"
    )
    lane, *last = max(sql(url, text, number), key=lambda row: row[2])
    return lane, Position(*last)


def looking(node: dict[str, Any]) -> int:
    """Pages looked at to find a job, without the catalog's and those where the row goes then."""
    here = node["Shared Hit Blocks"] + node["Shared Read Blocks"]
    if node.get("Index Name") == "jobs_claimable":
        return int(here)
    return sum(looking(one) for one in node.get("Plans", []))


async def touched(url: str, *marks: tuple[int, Position]) -> int:
    """How many pages the claim of one job looks at before it has found the job."""
    want = Maker(Clock()).want(1, holder="w", wire=True)
    statement = SQL["claim"]
    values = statement.values(asked(want, Clock().now, told_of(marks)))
    one = await open_connection(address.read(url))
    await one.run("begin")
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
    ((plan,),) = await one.driver.fetch(explain + statement.text, *values)
    await one.close()
    pages = looking(json.loads(plan)[0]["Plan"])
    assert pages
    return pages


@pytest.mark.usefixtures("old")
def test_beside_an_old_snapshot_only_a_claim_without_a_mark_walks_over_what_is_dead(
    fresh: str,
) -> None:
    async def use(world: World, _: Watch) -> None:
        for _round in range(DEAD // 500 + 1):
            await world.must(*(world.make.pushed() for _ in range(500)))
        few = claimed_away(fresh, 100)
        without_few, with_few = await touched(fresh), await touched(fresh, few)
        many = claimed_away(fresh, DEAD - 100)
        without_many, with_many = await touched(fresh), await touched(fresh, many)
        assert without_many > without_few + DEAD // 30
        assert with_many < with_few + 10

    in_slow_world(fresh, use)


# --- what a mark hides, and for how long --------------------------------------------------------


def without_a_word(url: str, job: j.Job, priority: int = 0, place: int = 0) -> None:
    """A job comes to stand somewhere else, and no bell rings."""
    text = "UPDATE detent.jobs SET priority = %s, place = %s WHERE id = %s"
    sql(url, text, priority, place, job.id)


@pytest.mark.parametrize("where", [{"priority": 9, "place": 100}, {"priority": 0, "place": 0}])
def test_what_comes_to_stand_before_a_mark_is_seen_after_a_second(
    url: str, where: dict[str, int]
) -> None:
    async def use(world: World, watch: Watch) -> None:
        jobs = [await world.push() for _ in range(5)]
        assert await first_of(world) == [jobs[0].id]
        without_a_word(url, jobs[4], **where)
        assert await first_of(world) == [jobs[1].id]
        watch.now_s += KEPT_S
        assert await first_of(world) == [jobs[4].id]

    in_slow_world(url, use)


def test_what_comes_to_stand_before_a_mark_is_seen_when_a_bell_rings(url: str) -> None:
    async def use(world: World, _: Watch) -> None:
        jobs = [await world.push() for _ in range(5)]
        assert await first_of(world) == [jobs[0].id]
        without_a_word(url, jobs[4], priority=9)
        late = await world.push(priority=8)
        assert await first_of(world, 2) == [jobs[4].id, late.id]

    in_slow_world(url, use)


def test_what_another_store_pushes_before_a_mark_is_seen_when_word_of_it_comes(url: str) -> None:
    async def use(world: World, _: Watch) -> None:
        jobs = [await world.push() for _ in range(3)]
        claimed = (await world.wish()).jobs
        assert [stored.job.id for stored in claimed] == [jobs[0].id]
        async with stores.open(url, clock=world.clock) as other:
            unit = world.make.pushed(priority=9)
            listening = asyncio.ensure_future(world.store.wait(0.9))
            await asyncio.sleep(0)
            await other.step([unit], now=world.now)
            assert await listening
        assert await first_of(world) == [unit.new[0].job.id]

    in_slow_world(url, use)


def test_a_claim_that_comes_short_looks_before_its_marks_at_once(url: str) -> None:
    async def use(world: World, _: Watch) -> None:
        jobs = [await world.push() for _ in range(3)]
        assert await first_of(world, 2) == [jobs[0].id, jobs[1].id]
        without_a_word(url, jobs[2], place=0)
        assert await first_of(world) == [jobs[2].id]
        assert await first_of(world) == []

    in_slow_world(url, use)


# --- marks themselves -----------------------------------------------------------------------------


def test_a_quick_claim_leaves_no_mark() -> None:
    marks = Marks(slow_s=0.005)
    marks.keep([(1, Position(0, 1, "a"))], 0.004, 0)
    assert marks.told(0) == NO_MARKS
    marks.keep([(1, Position(0, 1, "a"))], 0.006, 0)
    assert marks.told(0) == told_of([(1, Position(0, 1, "a"))])


def test_marks_only_go_forward_also_by_claims_that_they_made_quick() -> None:
    marks = Marks(clock=Watch())
    marks.keep([(1, Position(0, 5, "a")), (2, Position(0, 1, "b"))], 1.0, 0)
    marks.keep([(1, Position(0, 4, "c")), (2, Position(0, 2, "d"))], 0.0, 0)
    assert marks.told(0) == told_of([(1, Position(0, 5, "a")), (2, Position(0, 2, "d"))])


def test_a_claim_that_a_bell_overtook_leaves_no_mark() -> None:
    marks = Marks(clock=Watch())
    marks.keep([(1, Position(0, 5, "a"))], 1.0, 0)
    assert marks.told(1) == NO_MARKS
    marks.keep([(1, Position(0, 5, "a"))], 1.0, 0)
    assert marks.told(1) == NO_MARKS


def test_a_claim_that_took_nothing_drops_the_marks() -> None:
    marks = Marks(clock=Watch())
    marks.keep([(1, Position(0, 5, "a"))], 1.0, 0)
    marks.keep([], 0.0, 0)
    assert marks.told(0) == NO_MARKS
