"""The tail of all logs: nobody who follows it passes a line, whoever commits late or restores."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import psycopg
import pytest

from detent import stores
from detent.lifecycle import job as j
from detent.stores.api import Line, Logged, Store, key_of
from detent.stores.postgres.migrate import pending_migrations
from tests.contract.making import Clock
from tests.contract.world import World
from tests.postgres.running import durable, in_world, sql
from tests.postgres.server import databases
from tools.postgres import QUICK, program

_LATE_LINE = (
    "INSERT INTO detent.logs (tenant, id, cursor, at, level, text)"
    " VALUES ('', %s, 1, 0, 'info', 'late')"
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return databases().of(tmp_path)


async def say(world: World, job: j.Job, *texts: str) -> None:
    for text in texts:
        await world.store.append_logs([(key_of(job), Line(world.now, text))])


async def heard(store: Store, after: int = 0) -> list[str]:
    return [one.line.text for one in await store.log_tail(after)]


def test_a_line_that_is_committed_late_is_passed_by_no_reader(url: str) -> None:
    """Somebody's transaction writes a line, others write before and after it, then it commits."""

    async def use(world: World) -> None:
        first, second, late = [await world.push() for _ in range(3)]
        await say(world, first, "first")
        with psycopg.connect(url) as theirs:
            theirs.execute(_LATE_LINE, [late.id])
            await say(world, second, "second")
            seen = list(await world.store.log_tail())
            assert [one.line.text for one in seen] == ["first", "second"]
            await say(world, first, "third")
            theirs.commit()
        rest = list(await world.store.log_tail(seen[-1].pos))
        assert sorted(one.line.text for one in rest) == ["late", "third"]
        assert [*seen, *rest] == list(await world.store.log_tail())

    in_world(url, use)


def test_somebodys_open_transaction_does_not_stall_the_tail(url: str) -> None:
    async def use(world: World) -> None:
        job = await world.push()
        with psycopg.connect(url) as theirs:
            theirs.execute("CREATE TABLE theirs (x int)")
            await say(world, job, "first")
            assert await heard(world.store) == ["first"]
            await say(world, job, "second")
            assert await heard(world.store) == ["first", "second"]
            theirs.rollback()
        assert await heard(world.store) == ["first", "second"]

    in_world(url, use)


def test_many_who_read_the_tail_beside_writers_see_every_line_once(url: str) -> None:
    async def use(world: World) -> None:
        jobs = [await world.push() for _ in range(4)]
        async with stores.open(url, clock=world.clock) as second:
            seen: dict[Store, list[Logged]] = {world.store: [], second: []}

            async def read(store: Store) -> None:
                mine = seen[store]
                while len(mine) < 80:
                    mine += await store.log_tail(mine[-1].pos if mine else 0, 7)

            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for store in seen:
                    group.create_task(read(store))
                for job in jobs:
                    group.create_task(say(world, job, *map(str, range(20))))
            assert seen[world.store] == seen[second] == list(await second.log_tail())

    in_world(url, use)


@pytest.mark.parametrize(
    "restored",
    [
        "UPDATE detent.tail_sequencer SET snapshot = '900000000000:900000000000:'",
        "UPDATE detent.logs SET xid = '900000000000'",
    ],
    ids=["that was read", "that nobody had read"],
)
def test_the_tail_goes_on_after_a_restore_to_a_server_that_has_counted_less(
    url: str, restored: str
) -> None:
    async def use(world: World) -> None:
        job = await world.push()
        await say(world, job, "first")
        after = 0
        if "sequencer" in restored:
            after = (await world.store.log_tail())[-1].pos
        sql(url, restored)
        await say(world, job, "second", "third")
        for _ in range(2):
            assert (await heard(world.store, after))[-2:] == ["second", "third"]
        await say(world, job, "fourth")
        assert await heard(world.store) == ["first", "second", "third", "fourth"]

    in_world(url, use)


@pytest.mark.slow
def test_events_and_lines_of_a_dump_are_gone_on_from_in_a_new_cluster(url: str) -> None:
    """Some were read before the dump, some were not; the new server has hardly counted yet."""
    seen: list[tuple[int, int]] = []

    async def before(world: World) -> None:
        job = await world.push(id="a")
        await say(world, job, "first")
        seen.append(((await world.store.log_tail())[-1].pos, (await world.store.feed())[-1].pos))
        await say(world, job, "second")
        await world.push(id="b")

    async def after(world: World) -> None:
        [(line, event)] = seen
        await say(world, await world.push(id="c"), "third")
        assert await heard(world.store, line) == ["second", "third"]
        fed = await world.store.feed(event)
        assert [one.event.record for one in fed] == ["b", "c"]

    async def use() -> None:
        clock = Clock()
        async with stores.open(url, clock=clock) as store:
            await before(World(store, clock))

    asyncio.run(use())
    with durable(**QUICK) as other:
        dump = subprocess.run([program("pg_dump"), url], capture_output=True, check=True)  # noqa: S603
        subprocess.run(  # noqa: S603
            [program("psql"), "-q", "-v", "ON_ERROR_STOP=1", other.url("postgres")],
            input=dump.stdout,
            capture_output=True,
            check=True,
        )
        in_world(other.url("postgres"), after)


def test_lines_that_were_there_before_the_tail_had_a_sequencer_keep_their_positions() -> None:
    url = databases().empty()
    with psycopg.connect(url) as one:
        for migration in pending_migrations(url):
            if migration.version == 4:
                one.execute(
                    "INSERT INTO detent.logs (tenant, id, cursor, at, level, text)"
                    " OVERRIDING SYSTEM VALUE SELECT '', 'a', n, 0, 'info', n::text"
                    " FROM generate_series(1, 3) AS n"
                )
                one.execute("DELETE FROM detent.logs WHERE text = '2'")
            one.execute(migration.sql.encode())

    async def use() -> None:
        clock = Clock()
        async with stores.open(url, clock=clock) as store:
            assert [(x.pos, x.line.text) for x in await store.log_tail()] == [(1, "1"), (3, "3")]
            sql(url, _LATE_LINE.replace("1, 0", "4, 0"), "a")
            assert await heard(store, 3) == ["late"]

    asyncio.run(use())
