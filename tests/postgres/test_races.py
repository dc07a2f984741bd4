"""What may happen between two statements, each time held there on purpose."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from detent import stores
from detent.errors import StoreBusy
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.stores.api import Committed, Idempotency, LimitKind, Line, Retention, Unique, key_of
from detent.stores.inside import enqueue
from detent.stores.postgres import address, connection, granting, writing
from detent.stores.postgres.connection import Connection
from tests.contract.flowing import chain, command
from tests.contract.making import USER, WORKER
from tests.contract.world import HOUR, World
from tests.postgres.running import in_world, sql
from tests.postgres.server import databases
from tests.waiting import until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return databases().of(tmp_path)


_LOCKERS = "SELECT xmax::text FROM detent.workers"
_WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
"""How many of this database wait for somebody's lock."""


class Held:
    """The first run of a statement stops before it begins, until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch, statement: str) -> None:
        self.is_there, self.may_go = asyncio.Event(), asyncio.Event()
        fetch = Connection.fetch

        async def held(one: Connection, name: str, /, **told: Any) -> Any:
            if name == statement and not self.is_there.is_set():
                self.is_there.set()
                await self.may_go.wait()
            return await fetch(one, name, **told)

        patch.setattr(Connection, "fetch", held)


# --- limits ---------------------------------------------------------------------------------------


def test_a_limit_is_not_charged_for_a_job_that_somebody_else_has_locked(url: str) -> None:
    async def use(world: World) -> None:
        first, second = await world.push(), await world.push()
        await world.limit("default", rate=1, period_us=HOUR)
        with psycopg.connect(url) as theirs:
            theirs.execute("SELECT FROM detent.jobs WHERE id = %s FOR UPDATE", [first.id])
            assert await world.claim_ids(2) == [second.id]
        [limited] = await world.store.limits()
        assert limited.used.starts == 1
        world.clock.move(HOUR)
        assert await world.claim_ids(2) == [first.id]

    in_world(url, use)


def test_a_claim_that_looks_again_takes_nothing_twice(url: str) -> None:
    async def use(world: World) -> None:
        first, locked, third, fourth = [await world.push() for _ in range(4)]
        await world.limit("default", concurrency=100)
        with psycopg.connect(url) as theirs:
            theirs.execute("SELECT FROM detent.jobs WHERE id = %s FOR UPDATE", [locked.id])
            assert await world.claim_ids(3) == [first.id, third.id, fourth.id]
        [limited] = await world.store.limits()
        assert limited.active == 3
        assert await world.claim_ids(3) == [locked.id]

    in_world(url, use)


def test_turns_and_limits_stay_free_when_nothing_could_be_taken(url: str) -> None:
    async def use(world: World) -> None:
        job = await world.push()
        await world.limit("default", LimitKind.QUEUE, rate=1, period_us=HOUR)
        with psycopg.connect(url) as theirs:
            theirs.execute("SELECT FROM detent.jobs WHERE id = %s FOR UPDATE", [job.id])
            claimed = await world.wish()
            assert (claimed.jobs, claimed.retry_at) == ((), None)
        assert await world.claim_ids(1) == [job.id]

    in_world(url, use)


# --- the same claim twice -------------------------------------------------------------------------


@pytest.mark.parametrize("limited", [False, True])
def test_a_claim_made_again_while_the_first_is_still_under_way_takes_nothing_twice(
    url: str, limited: bool
) -> None:
    """A connection is cut, and the server goes on with what it was asked: it notices later."""

    async def use(world: World) -> None:
        for _ in range(6):
            await world.push()
        if limited:
            await world.limit("default", concurrency=100)
        await world.alive("w1")
        want = world.make.want(2)
        async with stores.open(url, clock=world.clock) as second:
            with psycopg.connect(url) as theirs:
                theirs.execute("UPDATE detent.workers SET alive_until = alive_until + 1")
                calls = [
                    asyncio.ensure_future(store.step([], now=world.now, want=want))
                    for store in (world.store, second)
                ]
                await asyncio.wait(calls, timeout=0.3)
            one, two = [(await call).claimed.jobs for call in calls]
        assert key_of(one[0].job) == key_of(two[0].job)
        assert len(one) == len(two) == len(await world.store.held_by("w1", 10)) == 2

    in_world(url, use)


def test_a_job_that_is_moved_while_a_claim_is_on_its_way_to_it_is_claimed_all_the_same(
    url: str,
) -> None:
    """The claim has its snapshot and waits for the row of its worker while the job is moved."""

    async def use(world: World) -> None:
        first, second = await world.push(), await world.push()
        await world.alive("w1")
        want = world.make.want(2)
        with psycopg.connect(url) as theirs:
            theirs.execute("SELECT FROM detent.workers FOR UPDATE")
            call = asyncio.ensure_future(world.store.step([], now=world.now, want=want))
            await until(lambda: sql(url, _WAITING)[0][0], "the claim waits")
            await world.do(first, j.Reprioritise(-1), USER)
        jobs = [stored.job for stored in (await call).claimed.jobs]
        assert [job.id for job in jobs] == [second.id, first.id]
        assert [job.version for job in jobs] == [2, 3]
        assert {job.lease for job in jobs} == set(want.leases)

    in_world(url, use)


def test_a_claim_locks_the_row_of_its_worker_only_if_it_finds_something(url: str) -> None:
    """A lock is written and synced: many idle workers would do that for every job of one."""

    async def use(world: World) -> None:
        await world.alive("w1")
        await world.store.step([], now=world.now, want=world.make.want(2))
        assert sql(url, _LOCKERS) == [("0",)]
        await world.push()
        stepped = await world.store.step([], now=world.now, want=world.make.want(2))
        assert len(stepped.claimed.jobs) == 1
        assert sql(url, _LOCKERS) != [("0",)]

    in_world(url, use)


def test_a_unit_that_hands_out_a_lease_twice_is_refused_alone(url: str) -> None:
    async def use(world: World) -> None:
        jobs = [await world.push() for _ in range(3)]
        await world.alive("w1")
        units = [
            world.make.doing(job, j.Claim(lease, "w1"), WORKER, lease=j.Lease(world.now + HOUR))
            for job, lease in zip(jobs, "aab", strict=True)
        ]
        outcomes = await world.commit(*units)
        assert [type(one).__name__ for one in outcomes] == ["Committed", "Rejected", "Committed"]

    in_world(url, use)


# --- who is stopped in the middle -----------------------------------------------------------------


def test_a_claimer_that_is_stopped_inside_its_transaction_holds_up_nobody_for_long(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection._SETTINGS, "idle_in_transaction_session_timeout", "500")  # noqa: SLF001

    async def use(world: World) -> None:
        job = await world.push()
        await world.limit("default", concurrency=1)
        stopped = await connection.open_connection(address.read(url))
        await stopped.run("begin")
        await granting.lock(stopped, world.make.want())
        assert await world.claim_ids(1) == [job.id]
        stopped.drop()

    in_world(url, use)


def test_a_call_whose_transaction_was_ended_for_its_silence_is_made_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection._SETTINGS, "idle_in_transaction_session_timeout", "200")  # noqa: SLF001

    async def use(world: World) -> None:
        job = await world.push()
        await world.limit("default", concurrency=1)
        held = Held(monkeypatch, "limits_locked")
        claiming = asyncio.ensure_future(world.claim_ids(1))
        await held.is_there.wait()
        await asyncio.wait([claiming], timeout=0.5)
        held.may_go.set()
        assert await claiming == [job.id]

    in_world(url, use)


# --- neighbours in one step -----------------------------------------------------------------------


def test_a_key_that_somebody_holds_stops_only_the_unit_that_wants_it(url: str) -> None:
    async def use(world: World) -> None:
        def wanting() -> Any:
            return world.make.pushed(idempotency=Idempotency("k", "d", world.now + HOUR))

        with psycopg.connect(url) as theirs:
            assert enqueue(theirs, wanting(), world.now, clock=world.clock) == Committed()
            mine, innocent = wanting(), world.make.pushed()
            with pytest.raises(StoreBusy) as told:
                await world.commit(mine, innocent)
            assert told.value.fields["blocked"] == (mine.command_id,)
            theirs.rollback()
        assert await world.store.get([key_of(innocent.new[0].job)]) != [None]
        await world.must(mine)

    in_world(url, use)


def test_who_cannot_claim_now_still_hears_that_its_units_are_committed(url: str) -> None:
    async def use(world: World) -> None:
        await world.limit("default", concurrency=5)
        await world.alive("w1")
        want, unit = world.make.want(), world.make.pushed()
        other = await connection.open_connection(address.read(url))
        async with other.transaction():
            await granting.lock(other, want)
            unit_and_claim = [unit, world.make.pushed(unique=Unique("f", ("available",)))]
            stepped = await world.store.step(unit_and_claim, now=world.now, want=want)
        await other.close()
        assert stepped.outcomes == (Committed(), Committed())
        assert stepped.claimed.jobs == ()
        assert len(await world.claim(5)) == 2

    in_world(url, use)


# --- steps that open and close --------------------------------------------------------------------


async def _resumed(world: World, held: Held, other: World) -> None:
    """The workflow goes on while a claim stands between two of its statements."""
    claiming = asyncio.ensure_future(world.claim_ids(2))
    await held.is_there.wait()
    resuming = asyncio.ensure_future(command(other, w.Resume()))
    await asyncio.wait([resuming], timeout=0.5)
    await other.alive("w2")
    await other.store.step([], now=world.now, want=world.make.want(tenant="t2", holder="w2"))
    held.may_go.set()
    await asyncio.gather(claiming, resuming)


@pytest.mark.parametrize("statement", ["flipped", "shut"])
def test_a_workflow_that_goes_on_while_somebody_claims_is_not_forgotten(
    url: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    async def use(world: World) -> None:
        await chain(world, "a", jobs=2, draft=statement == "flipped")
        if statement == "flipped":
            await command(world, w.Open())
        await command(world, w.Pause())
        async with stores.open(url, clock=world.clock) as second:
            other = World(second, world.clock)
            other.make = world.make
            await _resumed(world, Held(monkeypatch, statement), other)
        held = [stored.job.id for stored in await world.store.held_by("w1", 10)]
        assert sorted([*held, *await world.claim_ids(2)]) == ["a1", "a2"]

    in_world(url, use)


# --- restore --------------------------------------------------------------------------------------


def test_events_that_nobody_had_put_in_order_before_a_restore_come_first(url: str) -> None:
    """The server that they came from had counted further than this one."""

    async def use(world: World) -> None:
        job = await world.push()
        with psycopg.connect(url) as theirs:
            theirs.execute("ALTER TABLE detent.events DISABLE TRIGGER events_never_change")
            theirs.execute("UPDATE detent.events SET xid = '900000000000'")
            theirs.execute("ALTER TABLE detent.events ENABLE TRIGGER events_never_change")
        await world.do(job, j.Cancel(), USER)
        other = await world.push()
        for _ in range(2):
            fed = [(one.event.record, one.event.version) for one in await world.store.feed()]
            assert fed == [(job.id, 1), (job.id, 2), (other.id, 1)]
        await world.push()
        assert len(await world.store.feed()) == 4

    in_world(url, use)


# --- failover -------------------------------------------------------------------------------------

_TAKEN_OVER = """
    SET session_replication_role = replica;
    DELETE FROM detent.jobs WHERE queue = 'new';
    DELETE FROM detent.events WHERE record = 'lost';
    DELETE FROM detent.tallies WHERE lane = (SELECT lane FROM detent.lanes WHERE queue = 'new');
    UPDATE detent.lanes SET queue = 'other', digest = detent.digest_of(
        ARRAY[tenant, 'other', type, profile, delivery, key]
    ) WHERE queue = 'new';
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
"""A server took over that had not heard of the lane; somebody else's has its number since then."""


def test_a_lane_that_a_failover_has_lost_is_asked_for_anew(url: str) -> None:
    async def use(world: World) -> None:
        await world.push(id="lost", queue="new")
        with psycopg.connect(url, autocommit=True) as theirs:
            theirs.execute(_TAKEN_OVER)
        await world.push(id="kept", queue="new")
        assert await world.claim_ids(2, queues=("other",)) == []
        assert await world.claim_ids(2, queues=("new",)) == ["kept"]

    in_world(url, use)


# --- retention ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_retention_leaves_jobs_to_which_something_happened_while_it_looked(url: str) -> None:
    async def use(world: World) -> None:
        units = [world.make.pushed() for _ in range(1_000)]
        await world.must(*units)
        units = [world.make.doing(unit.new[0].job, j.Cancel(), USER) for unit in units]
        await world.must(*units)
        while await world.store.seal():
            pass
        world.clock.move(HOUR)
        rules = [Retention("cancelled", world.now)]
        said = [world.make.doing(one.moves[0].job, j.Annotate("d"), USER) for one in units]
        async with stores.open(url, clock=world.clock) as other:
            pruning = asyncio.ensure_future(other.prune(rules, now=world.now))
            heard = []
            while not pruning.done() and said:
                unit = said.pop()
                if await world.commit(unit) == [Committed()]:
                    heard.append(key_of(unit.moves[0].job))
            assert heard
            await pruning
        assert None not in await world.store.get(heard)

    in_world(url, use)


# --- logs -----------------------------------------------------------------------------------------


def test_lines_sent_again_while_the_first_attempt_is_still_under_way_are_appended_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(world: World) -> None:
        key = key_of(await world.push())
        appending = writing.Appending([(key, Line(1, "x"))])
        first = await connection.open_connection(address.read(url))
        second = await connection.open_connection(address.read(url))
        run = first.run

        async def cut(statement: str) -> None:
            if statement == "commit":
                raise ConnectionResetError
            await run(statement)

        monkeypatch.setattr(first, "run", cut)
        with pytest.raises(ConnectionResetError):
            await appending.run(first)
        again = asyncio.ensure_future(appending.run(second))
        await asyncio.wait([again], timeout=0.3)
        await run("commit")
        assert await again == [1]
        assert [one.cursor for one in await world.store.logs(key)] == [1]
        await first.close()
        await second.close()

    in_world(url, use)
