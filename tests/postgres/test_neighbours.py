"""What others do in the same database: open transactions, keys they hold, tables they lack."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from detent import stores
from detent.engine import commands
from detent.engine.commands import Change
from detent.engine.engine import Engine
from detent.errors import (
    BadUrl,
    SchemaAhead,
    SchemaBehind,
    StoreBusy,
    StoreRefused,
    StoreUnavailable,
    UnsupportedStore,
)
from detent.lifecycle import job as j
from detent.stores.api import Committed, Idempotency, Stored, Unique, key_of
from detent.stores.postgres import connection, migrate
from detent.stores.postgres.statements import MIGRATIONS
from detent.stores.select import Filter
from tests.contract.making import USER, WORKER, Clock
from tests.contract.world import World
from tests.postgres.running import in_world, sql
from tests.postgres.server import databases
from tests.waiting import eventually

LIVE = ("scheduled", "available", "pending", "active", "retryable")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return databases().of(tmp_path)


@pytest.fixture
def foreign(url: str) -> Iterator[psycopg.Connection]:
    """A transaction of somebody else that has written something and stays open."""
    with psycopg.connect(url) as one:
        one.execute("CREATE TABLE IF NOT EXISTS theirs (x int)")
        one.execute("INSERT INTO theirs VALUES (1)")
        yield one
        one.rollback()


def test_somebodys_open_transaction_stalls_neither_claims_nor_the_feed(
    url: str, foreign: psycopg.Connection
) -> None:
    async def use(world: World) -> None:
        jobs = [await world.push() for _ in range(3)]
        assert [fed.event.record for fed in await world.store.feed()] == [job.id for job in jobs]
        assert len(await world.claim(3)) == 3
        assert len(await world.store.feed()) == 6
        assert await world.store.seal() is not None

    in_world(url, use)
    foreign.rollback()


def test_an_event_that_is_committed_late_is_not_skipped(url: str) -> None:
    """A user's own transaction writes an event, others commit after it, then it commits."""

    async def use(world: World) -> None:
        one = await world.push()
        with psycopg.connect(url) as theirs:
            theirs.execute("DELETE FROM detent.tallies WHERE false")
            theirs.execute(
                "INSERT INTO detent.events (tenant, record, version, at, name, source, target,"
                " actor, actor_id, command_id, kind) VALUES ('', 'late', 1, 0, 'enqueue', NULL,"
                " 'available', 'user', 'u', 'c', 'job')"
            )
            two = await world.push()
            fed = [fed.event.record for fed in await world.store.feed()]
            assert fed == [one.id, two.id]
            theirs.commit()
        fed = [fed.event.record for fed in await world.store.feed()]
        assert fed == [one.id, two.id, "late"]

    async def run() -> None:
        clock = Clock()
        async with stores.open(url, clock=clock) as store:
            await use(World(store, clock))

    asyncio.run(run())


def test_many_who_read_the_feed_beside_writers_see_one_order(url: str) -> None:
    async def use(world: World) -> None:
        async with stores.open(url, clock=world.clock) as second:
            seen: dict[object, list[object]] = {world.store: [], second: []}

            async def read(store: stores.Store) -> None:
                while len(seen[store]) < 80:
                    seen[store] += await store.feed(len(seen[store]), 7)

            async def write() -> None:
                for _ in range(10):
                    await world.do(await world.push(), j.Cancel(), USER)

            await asyncio.gather(read(world.store), read(second), *(write() for _ in range(4)))
            assert seen[world.store] == seen[second]
            assert [fed.pos for fed in seen[second]] == list(range(1, 81))  # type: ignore[attr-defined]

    in_world(url, use)


def test_the_feed_goes_on_after_a_restore_to_a_server_that_has_counted_less(url: str) -> None:
    """The tables remember transaction numbers that this server will not reach for long."""

    async def use(world: World) -> None:
        first = await world.push()
        assert len(await world.store.feed()) == 1
        sql(url, "UPDATE detent.sequencer SET snapshot = '900000000000:900000000000:'")
        second, third = await world.push(), await world.push()
        for _ in range(2):
            fed = [fed.event.record for fed in await world.store.feed()]
            assert fed == [first.id, second.id, third.id]
        await world.push()
        assert len(await world.store.feed()) == 4

    in_world(url, use)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["id", "key"])
def test_who_needs_what_an_open_transaction_holds_is_told_and_others_go_on(
    url: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection._SETTINGS, "lock_timeout", "200")  # noqa: SLF001

    async def use(world: World) -> None:
        await world.push(id="first")
        with psycopg.connect(url) as theirs:
            theirs.execute("CREATE TEMP TABLE one AS SELECT * FROM detent.jobs")
            theirs.execute("UPDATE one SET id = 'held'")
            theirs.execute("INSERT INTO detent.jobs SELECT * FROM one")
            if what == "key":
                theirs.execute(
                    "INSERT INTO detent.idempotency VALUES ('', 'k', 'd', 9e15::bigint, 'held')"
                )
            wanted = {"id": "held"} if what == "id" else {}
            promise = Idempotency("k", "d", world.now + 10**9) if what == "key" else None
            blocked = world.make.pushed(**wanted, idempotency=promise)
            fine = [world.make.pushed() for _ in range(5)]
            calls = [world.store.step([unit], now=world.now) for unit in [blocked, *fine]]
            first, *rest = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(first, StoreBusy), first
            assert [one.outcomes for one in rest] == [(Committed(),)] * 5  # type: ignore[union-attr]
            theirs.rollback()
        await world.must(blocked)

    in_world(url, use)


def test_a_unique_job_waits_for_nobody_who_wants_another(url: str) -> None:
    async def use(world: World) -> None:
        units = [world.make.pushed(unique=Unique(f"f{n % 5}", LIVE)) for n in range(40)]
        calls = [world.store.step([unit], now=world.now) for unit in units]
        outcomes = [step.outcomes[0] for step in await asyncio.gather(*calls)]
        assert outcomes.count(Committed()) == 5

    in_world(url, use)


def test_word_of_a_new_job_comes_from_another_store(url: str) -> None:
    async def use(world: World) -> None:
        async with stores.open(url, clock=world.clock) as other:
            waiting = asyncio.ensure_future(other.wait(0.9))
            await asyncio.sleep(0)
            await world.push()
            assert await waiting

    in_world(url, use)


def test_many_who_claim_and_move_at_once_never_wait_in_a_circle(url: str) -> None:
    async def use(world: World) -> None:
        jobs = [await world.push() for _ in range(12)]
        for turn in range(10):
            held = [(await world.got(job)).job for job in jobs]
            command = j.Hold() if turn % 2 == 0 else j.Activate()
            forth = [world.make.doing(job, command, USER) for job in held]
            back = [world.make.doing(job, command, USER) for job in reversed(held)]
            calls = [world.store.step(some, now=world.now) for some in (forth, back)]
            told = [one for step in await asyncio.gather(*calls) for one in step.outcomes]
            assert told.count(Committed()) == 12

    in_world(url, use)


# --- opening --------------------------------------------------------------------------------------


def opened(url: str) -> None:
    async def use() -> None:
        async with stores.open(url):
            pass

    asyncio.run(use())


def test_an_empty_database_gets_its_tables_when_it_is_opened() -> None:
    url = databases().empty()
    assert list(stores.pending_migrations(url)) != []
    opened(url)
    assert list(stores.pending_migrations(url)) == []


def test_of_many_who_migrate_at_once_one_does() -> None:
    url = databases().empty()
    with ThreadPoolExecutor(6) as threads:
        runs = list(threads.map(lambda _: stores.run_migrations(url), range(6)))
    assert sorted(bool(one) for one in runs) == [False] * 5 + [True]
    opened(url)


def test_a_migration_takes_its_time_and_waits_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many jobs there are: neither a statement that takes long nor a wait ends it."""
    url = databases().empty()
    usual = connection.open_connection.__kwdefaults__
    assert usual is not None
    monkeypatch.setitem(usual, "answer_s", 0.3)
    monkeypatch.setitem(connection._SETTINGS, "lock_timeout", "100")  # noqa: SLF001
    slow = replace(MIGRATIONS[-1], sql=f"{MIGRATIONS[-1].sql}; SELECT pg_sleep(0.6);")
    monkeypatch.setattr(migrate, "MIGRATIONS", (*MIGRATIONS[:-1], slow))
    waited = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as thread, psycopg.connect(url) as other:
        other.execute("SELECT pg_advisory_xact_lock(7311424178)")
        run = thread.submit(stores.run_migrations, url)
        eventually(lambda: sql(url, f"{waited} AND query_start < now() - interval '0.6 s'"))
        other.rollback()
        assert len(run.result()) == len(MIGRATIONS)


def test_tables_that_are_behind_or_ahead_are_refused(url: str) -> None:
    sql(url, "CREATE TABLE kept AS TABLE detent.meta")
    sql(url, "UPDATE detent.meta SET value = '0' WHERE name = 'schema_version'")
    with pytest.raises(SchemaBehind, match="detent migrate"):
        opened(url)
    sql(url, "UPDATE detent.meta SET value = '99'")
    with pytest.raises(SchemaAhead):
        opened(url)
    sql(url, "UPDATE detent.meta AS m SET value = k.value FROM kept AS k WHERE k.name = m.name")
    sql(url, "DROP TABLE kept")
    opened(url)


def test_tables_of_somebody_else_in_our_schema_are_refused() -> None:
    url = databases().empty()
    sql(url, "CREATE SCHEMA detent")
    sql(url, "CREATE TABLE detent.theirs (x int)")
    with pytest.raises(UnsupportedStore):
        opened(url)


def test_whoever_is_not_let_in_hears_why(url: str) -> None:
    with pytest.raises(StoreRefused):
        opened(databases().address("no_such_database"))
    with pytest.raises(StoreUnavailable):
        opened("postgresql://postgres@127.0.0.1:1/none")
    sql(url, "DROP ROLE IF EXISTS detent_guest")
    sql(url, "CREATE ROLE detent_guest LOGIN")
    with pytest.raises(StoreRefused):
        opened(url.replace("postgres@", "detent_guest@"))
    sql(url, "DROP ROLE detent_guest")


def test_a_database_that_only_reads_or_has_another_encoding_is_refused(url: str) -> None:
    name = url.partition("@/")[2].partition("?")[0]
    sql(
        databases().address("postgres"),
        f"ALTER DATABASE {name} SET default_transaction_read_only = on",
    )
    try:
        with pytest.raises(UnsupportedStore, match="read-only"):
            opened(url)
    finally:
        sql(databases().address("postgres"), f"ALTER DATABASE {name} RESET ALL")


@pytest.mark.parametrize("more", ["connections=0", "connections=x", "prepare=maybe", "pgbouncer=1"])
def test_words_of_the_address_that_mean_nothing_are_refused(more: str) -> None:
    with pytest.raises(BadUrl):
        stores.open(f"postgresql://host/name?{more}")


@pytest.mark.parametrize("place", ["u:se@cret@h", "u:se#cret@h", "u:se/cret@h", "h:x", "h:99999"])
def test_a_password_with_signs_of_its_own_is_told_how_to_write_them(place: str) -> None:
    with pytest.raises(BadUrl, match="write @ as %40") as refused:
        stores.open(f"postgresql://{place}/name")
    assert "cret" not in str(refused.value.fields) + refused.value.message


@pytest.mark.parametrize("place", ["u:s%40@h:1", "[::1]:5432", "[::1]", "a:1,b:2", "u:p:q@h", ""])
def test_hosts_and_ports_of_every_kind_are_taken(place: str) -> None:
    stores.open(f"postgresql://{place}/name")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_the_addresses_of_hosts_and_of_sqlalchemy_are_taken_as_they_are(
    url: str, scheme: str
) -> None:
    theirs = url.replace("postgresql", scheme, 1)
    assert stores.pending_migrations(theirs) == stores.pending_migrations(url)

    async def use(world: World) -> None:
        job = await world.push()
        assert [one.job.id for one in await world.store.find(Filter())] == [job.id]

    in_world(theirs, use)


@pytest.mark.parametrize("more", ["pgbouncer=yes", "prepare=no", "connections=1"])
def test_the_words_of_the_address_change_no_answer(url: str, more: str) -> None:
    async def use(world: World) -> None:
        await world.push()
        assert len(await world.claim()) == 1

    in_world(f"{url}&{more}", use)


def test_the_clock_of_the_server_is_used_unless_one_is_given(url: str) -> None:
    async def use() -> None:
        async with stores.open(url) as store:
            [(now,)] = sql(url, "SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint")
            assert list(await store.take_due(now=now, limit=1)) == []

    asyncio.run(use())


def test_a_job_that_somebody_holds_is_busy_and_its_neighbours_are_not(
    url: str, foreign: psycopg.Connection
) -> None:
    async def use(world: World) -> None:
        await world.alive("w1")
        for _ in range(3):
            await world.push()
        jobs = await world.claim(3)
        held = jobs[1].job
        foreign.execute("SELECT 1 FROM detent.jobs WHERE id = %s FOR UPDATE", [held.id])
        async with Engine(world.store) as engine:
            reports = [engine.complete(_done(stored)) for stored in jobs]
            first, busy, third = await asyncio.gather(*reports, return_exceptions=True)
            assert isinstance(first, j.Accepted)
            assert isinstance(busy, StoreBusy)
            assert isinstance(third, j.Accepted)
            foreign.rollback()
            assert isinstance(await engine.complete(_done(jobs[1])), j.Accepted)

    in_world(url, use)


def test_ends_that_somebody_holds_up_keep_no_others_from_being_told(
    url: str, foreign: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those that go with it nor those of the next piece."""
    monkeypatch.setattr(commands, "PIECE", 4)

    async def use(world: World) -> None:
        await world.alive("w1")
        for _ in range(12):
            await world.push()
        jobs = await world.claim(12)
        held = jobs[1].job
        foreign.execute("SELECT 1 FROM detent.jobs WHERE id = %s FOR UPDATE", [held.id])
        async with Engine(world.store) as engine:
            with pytest.raises(StoreBusy) as caught:
                await engine.refused([_done(stored) for stored in jobs])
            assert len(caught.value.fields["blocked"]) == 1
            found = await world.store.get([key_of(one.job) for one in jobs])
            left = [one.job.id for one in found if one is not None and one.job.state == "active"]
            assert left == [held.id]
            foreign.rollback()
            assert await engine.refused([_done(jobs[1])]) == {}

    in_world(url, use)


def _done(stored: Stored) -> Change:
    command = j.Complete(lease=stored.job.lease)
    return Change(key_of(stored.job), command, WORKER, known=stored)
