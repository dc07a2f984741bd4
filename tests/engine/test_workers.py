"""Histories of worker instances: shipped as often as one likes, kept once, and verified."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from detent import stores
from detent.engine.engine import Engine
from detent.engine.hurdles import Hurdle, Verdict
from detent.engine.upkeep import KEPT_US
from detent.engine.verify import Verification
from detent.engine.verify.finding import Check, Finding
from detent.errors import BadHistory
from detent.lifecycle.event import Event
from detent.stores.api import Fed, Key, Life, Who, WorkerRow
from detent.stores.memory import MemoryStore
from tests.contract.living import born, life, whole
from tests.contract.making import SECOND, Clock
from tests.contract.world import World


async def found(store: object) -> list[Finding]:
    check = Verification(store)  # type: ignore[arg-type]
    return [one async for one in check.findings()]


# --- shipping -------------------------------------------------------------------------------------


async def test_the_same_events_again_change_nothing(world: World, engine: Engine) -> None:
    events = [*whole("i1", world.now), *whole("i2", world.now, slot="x")]
    assert await engine.workers.ship(events) == 10
    assert await engine.workers.ship(events) == 0
    assert await world.feed() == [*events]
    assert await engine.workers.history("i1") == events[:5]


@pytest.mark.parametrize("at", range(1, 5))
async def test_a_cursor_that_was_lost_costs_nothing(world: World, engine: Engine, at: int) -> None:
    events = whole("i1", world.now)
    assert await engine.workers.ship(events[:at]) == at
    assert await engine.workers.ship(events) == 5 - at
    assert await engine.workers.history("i1") == events
    assert await found(world.store) == []


async def test_two_that_ship_the_same_at_once_write_it_once(world: World, engine: Engine) -> None:
    events = [*whole("i1", world.now), *whole("i2", world.now)]
    several = [engine.workers, Engine(world.store).workers, Engine(world.store).workers]
    assert sum(await asyncio.gather(*(one.ship(events) for one in several))) == 10
    assert len(await world.feed()) == 10


async def test_events_of_instances_may_be_mixed_and_many(world: World, engine: Engine) -> None:
    lives = [whole(f"i{number:03}", world.now) for number in range(130)]
    mixed = [event for some in zip(*lives, strict=True) for event in some]
    assert await engine.workers.ship(mixed) == 650
    assert len(await world.store.find_instances()) == 130


async def test_what_differs_from_what_is_stored_is_refused(world: World, engine: Engine) -> None:
    events = whole("i1", world.now)
    await engine.workers.ship(events[:3])
    forged = [events[0], replace(events[1], reason="another"), *events[2:]]
    with pytest.raises(BadHistory, match=r"i1 version 2 .*not the event that is stored"):
        await engine.workers.ship(forged)
    assert await engine.workers.history("i1") == events[:3]


def _without_its_process(events: list[Event]) -> list[Event]:
    return [events[0], events[1], replace(events[2], worker=None), *events[3:]]


def _with_a_gap(events: list[Event]) -> list[Event]:
    return [events[0], *events[2:]]


def _of_a_job(events: list[Event]) -> list[Event]:
    return [replace(one, kind="job") for one in events]


@pytest.mark.parametrize("wrong", [_without_its_process, _with_a_gap, _of_a_job])
async def test_a_life_that_cannot_have_been_lived_is_refused(
    world: World, engine: Engine, wrong: object
) -> None:
    with pytest.raises(BadHistory):
        await engine.workers.ship(wrong(whole("i1", world.now)))  # type: ignore[operator]
    assert await world.feed() == []


async def test_the_name_of_a_job_is_not_a_workers(world: World, engine: Engine) -> None:
    await world.push(id="x")
    with pytest.raises(BadHistory):
        await engine.workers.ship(whole("x", world.now))


# --- looking --------------------------------------------------------------------------------------


async def test_instances_are_listed_with_their_state_and_since_when(
    world: World, engine: Engine
) -> None:
    alive, gone = list(born("i1", world.now, slot="mail").events), whole("i2", world.now)
    await engine.workers.ship([*alive, *gone])
    row = WorkerRow("drain", world.now + SECOND, who=Who(started_at=7), state="running")
    await world.store.beat([row], now=world.now)
    listed = await engine.workers.listed()
    assert [(one.id, one.state, one.since) for one in listed] == [
        ("drain", "Running", 7),
        ("i1", "Created", world.now),
    ]
    [other] = await engine.workers.listed(gone=True)
    assert (other.id, other.state, other.since) == ("i2", "Failed", world.now + 4)


def worker_hurdle(hurdles: tuple[Hurdle, ...]) -> Hurdle:
    return next(one for one in hurdles if one.name == "worker")


@pytest.mark.parametrize(
    ("who", "state", "verdict", "says"),
    [
        (
            Who(queues=("default",), types=("mail.send",)),
            "running",
            Verdict.PASS,
            "w1 would take it",
        ),
        (Who(), "", Verdict.PASS, "w1 would take it"),
        (Who(queues=("other",)), "", Verdict.FAIL, "1 worker alive, none takes type mail.send"),
        (Who(types=("report",)), "", Verdict.FAIL, "from queue default: w1"),
        (Who(tenants=("t2",)), "", Verdict.FAIL, "none takes"),
        (Who(), "suspended", Verdict.FAIL, "none takes"),
        (None, "", Verdict.UNKNOWN, "not recorded"),
    ],
)
async def test_why_says_who_would_take_a_job(
    world: World, engine: Engine, who: Who | None, state: str, verdict: Verdict, says: str
) -> None:
    row = WorkerRow("w1", world.now + SECOND, who=who, state=state)
    await world.store.beat([row], now=world.now)
    await world.push(id="x")
    hurdle = worker_hurdle((await engine.queries.why(("", "x"))).hurdles)
    assert hurdle.verdict is verdict
    assert says in hurdle.says


# --- who is there ---------------------------------------------------------------------------------


def _fleet(name: str, slot: str, fleet: str, now: int) -> list[Event]:
    """A running instance that a fleet has told of."""
    return [replace(one, actor_id=f"fleet {fleet}") for one in whole(name, now, slot=slot)[:4]]


async def test_who_fell_silent_with_its_supervisor_is_gone(world: World, engine: Engine) -> None:
    """Nobody tells their end; they were listed as running for ever."""
    for fleet in ("dead", "well"):
        worker, keeper = f"{fleet}-1", f"{fleet}-2"
        await engine.workers.ship(_fleet(worker, "worker-1", fleet, world.now))
        await engine.workers.ship(_fleet(keeper, "upkeep", fleet, world.now))
        until = world.now + (SECOND if fleet == "dead" else 60 * SECOND)
        row = WorkerRow(worker, until, who=Who(supervisor=fleet, slot="worker-1"), state="running")
        await world.store.beat([row], now=world.now)
    assert len(await engine.workers.listed()) == 4
    world.clock.move(2 * SECOND)
    await world.store.declare_lost(["dead-1"], now=world.now)
    assert [one.id for one in await engine.workers.listed()] == ["well-1", "well-2"]
    gone = await engine.workers.listed(gone=True)
    assert [(one.id, one.state) for one in gone] == [("dead-1", "Gone"), ("dead-2", "Gone")]


async def _left_by(world: World, engine: Engine, *fleets: str) -> None:
    """Each fleet has a worker and a keeper, both running; nobody ever tells their end."""
    for fleet in fleets:
        for name, slot in ((f"{fleet}-1", "worker-1"), (f"{fleet}-2", "upkeep")):
            await engine.workers.ship(_fleet(name, slot, fleet, world.now))
        row = WorkerRow(f"{fleet}-1", world.now + SECOND, who=Who(supervisor=fleet))
        await world.store.beat([row], now=world.now)


async def _looked_after(world: World, engine: Engine, us: int) -> None:
    """Upkeep looks again after so long, and has watched for long enough to judge."""
    world.clock.move(us)
    for _ in range(8):
        await engine.upkeep.turn()
        world.clock.move(3 * SECOND)


async def test_what_a_silent_supervisor_left_ends_as_lost_and_is_forgotten(
    world: World, engine: Engine
) -> None:
    """A pod that is killed with its state folder: its histories were kept for ever."""
    await _left_by(world, engine, "dead", "well")
    await _looked_after(world, engine, 30 * SECOND)
    await _left_by(world, engine, "new")
    beating = WorkerRow("well-3", world.now + 30 * KEPT_US, who=Who(supervisor="well"))
    await world.store.beat([beating], now=world.now)
    await _looked_after(world, engine, KEPT_US // 2)
    assert not [one for one in await world.store.find_instances() if one.state.is_terminal]
    await _looked_after(world, engine, KEPT_US)
    ended = [one for one in await world.store.find_instances() if one.state.is_terminal]
    assert [(one.id, one.cause) for one in ended] == [
        (name, "lost") for name in ("dead-1", "dead-2", "new-1", "new-2")
    ]
    assert await found(world.store) == []
    await _looked_after(world, engine, KEPT_US + 4_000 * SECOND)
    await _looked_after(world, engine, 4_000 * SECOND)
    assert [one.id for one in await world.store.find_instances()] == ["well-1", "well-2"]
    assert "dead-1" not in [row.id for row in await world.store.workers(gone=True)]


async def test_who_comes_back_after_that_ships_everything_else(
    world: World, engine: Engine
) -> None:
    events = whole("dead-1", world.now, slot="worker-1")
    true = [replace(one, actor_id="fleet dead") for one in events]
    await _left_by(world, engine, "dead")
    await _looked_after(world, engine, 30 * SECOND)
    await _looked_after(world, engine, KEPT_US + SECOND)
    with pytest.raises(BadHistory, match="not the event that is stored"):
        await engine.workers.ship(true)
    assert await engine.workers.ship(whole("next-1", world.now)) == 5
    assert await found(world.store) == []


class Counting(MemoryStore):
    """A store that counts how often it is asked for histories."""

    asked = 0

    async def history(self, key: Key) -> Sequence[Event]:
        self.asked += 1
        return await super().history(key)

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[Fed]]:
        self.asked += 1
        return await super().histories(keys)


def test_a_list_of_workers_reads_their_histories_at_once() -> None:
    asyncio.run(_listed_at_once(Counting(Clock())))


async def _listed_at_once(store: Counting) -> None:
    async with store:
        engine = Engine(store)
        for number in range(20):
            name = f"i{number:02}"
            await engine.workers.ship(_fleet(name, "worker-1", "well", store.now()))
        before = store.asked
        assert {one.supervisor for one in await engine.workers.listed()} == {"well"}
        assert store.asked - before == 1


# --- verifying ------------------------------------------------------------------------------------


async def test_verify_counts_workers_and_finds_nothing(world: World, engine: Engine) -> None:
    await world.push(id="x")
    await engine.workers.ship([*whole("i1", world.now), *whole("i2", world.now, tenant="t")])
    while await world.store.seal(limit=4):
        pass
    check = Verification(world.store)
    assert [one async for one in check.findings()] == []
    assert (check.seen.workers, check.seen.events) == (2, 11)
    check = Verification(world.store, tenant="t")
    assert [one async for one in check.findings()] == []
    assert check.seen.workers == 1


class Forging(MemoryStore):
    """A store into which somebody has written by hand."""

    def forge(self, number: int, **changes: object) -> None:
        for history in self._all.events.values():
            for place, fed in enumerate(history):
                if fed.pos == number + 1:
                    history[place] = replace(fed, event=replace(fed.event, **changes))

    def behead(self, one: Life) -> None:
        self._all.instances[one.instance.tenant, one.instance.id] = one.instance


async def forging() -> tuple[Forging, int]:
    clock = Clock()
    store = Forging(clock)
    await store.__aenter__()
    await Engine(store).workers.ship([*whole("i1", clock.now), *whole("i2", clock.now)])
    return store, clock.now


@pytest.mark.parametrize(
    ("number", "changes", "where", "why"),
    [
        (6, {"actor": "worker"}, "i2 version 2", "may not start"),
        (7, {"worker": None}, "i2 version 3", "does not carry pid, process_at"),
        (8, {"at": 5}, "i2 version 4", "event times never decrease"),
        (9, {"cause": "natural"}, "i2 version 5", "does not happen for natural"),
        (9, {"reason": "another"}, "i2 version 5", None),
    ],
)
def test_verify_names_the_first_event_that_cannot_have_happened(
    number: int, changes: dict[str, object], where: str, why: str | None
) -> None:
    async def run() -> Finding:
        store, _ = await forging()
        while await store.seal():
            pass
        store.forge(number, **changes)
        return (await found(store))[0]

    first = asyncio.run(run())
    assert first.where == where
    assert first.check is (Check.SEAL if why is None else Check.HISTORY)
    assert why is None or why in first.why


def test_verify_names_a_head_that_is_not_what_its_history_leads_to() -> None:
    async def run() -> list[Finding]:
        store, now = await forging()
        store.behead(life(whole("i1", now)[:3]))
        return await found(store)

    [first] = asyncio.run(run())
    assert (first.where, first.check) == ("i1 version 4", Check.HISTORY)
    assert "goes on to version 5" in first.why


def test_verify_names_a_head_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"

    async def run(damage: str | None = None) -> list[Finding]:
        async with stores.open(f"sqlite:///{path}") as store:
            if damage is None:
                await Engine(store).workers.ship([*whole("i1", 1), *whole("i2", 1)])
            return await found(store)

    assert asyncio.run(run()) == []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE detent_instances SET record = '{' WHERE id = 'i1'")
    [first] = asyncio.run(run("done"))
    assert (first.check, first.where) == (Check.ROW, "i1")


def test_the_database_itself_refuses_what_no_worker_lives(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"

    async def run() -> None:
        async with stores.open(f"sqlite:///{path}") as store:
            await Engine(store).workers.ship(whole("i1", 1))
            while await store.seal():
                pass

    asyncio.run(run())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        created = (
            "INSERT INTO detent_events SELECT 99, tenant, record, 9, at, 'start', 'running',"
            " 'created', actor, actor_id, command_id, kind, rest FROM detent_events WHERE pos = 1"
        )
        for statement in (
            "UPDATE detent_instances SET state = 'active'",
            "DELETE FROM detent_events WHERE record = 'i1'",
            created,
        ):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(statement)


async def test_a_version_that_there_cannot_be_is_refused(world: World, engine: Engine) -> None:
    with pytest.raises(BadHistory):
        await engine.workers.ship([replace(one, version=0) for one in whole("i1", world.now)])
