"""The writer: callers share transactions, and one that fails does not hurt its neighbours."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from detent import stores
from detent.errors import StoreBusy, StoreClosed
from detent.lifecycle.seal import leaf
from detent.stores.api import Committed, Line, Rejected, Store, Unit
from detent.stores.sqlite import SqliteStore
from detent.stores.sqlite.transaction import Transaction
from tests.contract.making import forged
from tests.sqlite.child import Own
from tests.sqlite.processes import faults_of, states, url_of

Use = Callable[[SqliteStore, Own], Awaitable[None]]


def using(path: Path, use: Use) -> None:
    async def main() -> None:
        make = Own("p")
        store = SqliteStore(path, make.clock)
        async with store:
            await use(store, make)

    asyncio.run(main())


async def together(store: Store, make: Own, units: list[Unit]) -> list[object]:
    """Each unit by a caller of its own, all at the same time."""
    stepped = await asyncio.gather(*(store.step([unit], now=make.now) for unit in units))
    return [one.outcomes[0] for one in stepped]


def test_many_callers_share_few_transactions(tmp_path: Path) -> None:
    counted: list[str] = []

    async def use(store: SqliteStore, make: Own) -> None:
        await do(store, lambda tx: tx.connection.set_trace_callback(counted.append))
        assert await together(store, make, [make.pair() for _ in range(200)]) == [Committed()] * 200

    using(tmp_path / "detent.db", use)
    assert sum(statement == "COMMIT" for statement in counted) < 20


async def do(store: SqliteStore, run: Callable[[Transaction], object]) -> object:
    writer = store._opened().writer  # noqa: SLF001 - there is no other way to its connection
    assert writer is not None
    return await writer.do(run)


@pytest.mark.parametrize("fault", ["number", "text", "move"])
def test_a_unit_that_the_database_refuses_does_not_hurt_its_neighbours(
    tmp_path: Path, fault: str
) -> None:
    async def use(store: SqliteStore, make: Own) -> None:
        units = [make.pushed(id=f"j{number}") for number in range(10)]
        units[4] = spoiled(make, fault)
        outcomes = await together(store, make, units)
        assert [isinstance(one, Rejected) for one in outcomes] == [n == 4 for n in range(10)]

    path = tmp_path / "detent.db"
    using(path, use)
    assert sorted(states(path)) == [f"j{number}" for number in range(10) if number != 4]
    assert faults_of(path) == []


def spoiled(make: Own, fault: str) -> Unit:
    if fault == "number":
        return make.inserting(forged(make.new(id="bad"), priority=2**70))
    if fault == "text":
        return make.inserting(forged(make.new(id="bad"), record="bad \ud800"))
    unit = make.pushed(id="bad")
    [new] = unit.new
    [event] = new.events
    wrong = event.__class__(
        **{f: getattr(event, f) for f in event.__struct_fields__ if f != "name"}, name="claim"
    )
    return Unit(unit.command_id, new=(new.__class__(new.job, (wrong,), new.body),))


def test_an_operation_that_fails_by_our_own_fault_fails_alone(tmp_path: Path) -> None:
    def broken(tx: Transaction) -> None:
        tx.execute("beat", '[["half done", 1, "", null, false]]', 1, 1)
        raise ZeroDivisionError

    async def use(store: SqliteStore, make: Own) -> None:
        unit = make.pair()
        pushing = asyncio.ensure_future(store.step([unit], now=make.now))
        with pytest.raises(ZeroDivisionError):
            await do(store, broken)
        assert (await pushing).outcomes == (Committed(),)
        assert await do(store, lambda tx: tx.execute("worker", "half done").fetchall()) == []

    using(tmp_path / "detent.db", use)


def test_closing_does_what_was_asked_before(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"

    async def main() -> None:
        make = Own("p")
        store = stores.open(url_of(path), clock=make.clock)
        async with store:
            pushing = [
                asyncio.ensure_future(store.step([make.pair()], now=make.now)) for _ in range(50)
            ]
            await asyncio.sleep(0)
        assert all(one.outcomes == (Committed(),) for one in await asyncio.gather(*pushing))
        with pytest.raises(StoreClosed):
            await store.step([], now=make.now)

    asyncio.run(main())
    assert len(states(path)) == 100


def test_a_caller_that_goes_away_disturbs_nobody(tmp_path: Path) -> None:
    async def use(store: SqliteStore, make: Own) -> None:
        calls = [asyncio.ensure_future(store.step([make.pair()], now=make.now)) for _ in range(10)]
        await asyncio.sleep(0)
        calls[3].cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in answers) == 1

    using(tmp_path / "detent.db", use)
    assert faults_of(tmp_path / "detent.db") == []


def test_somebody_who_keeps_the_database_locked_is_reported_and_survived(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"

    async def use(store: SqliteStore, make: Own) -> None:
        await do(store, lambda tx: tx.connection.execute("PRAGMA busy_timeout = 1").fetchall())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            await store.step([make.pair()], now=make.now)
        other.close()
        assert (await store.step([make.pair()], now=make.now)).outcomes == (Committed(),)

    using(path, use)


def test_readers_see_only_what_is_committed(tmp_path: Path) -> None:
    async def use(store: SqliteStore, make: Own) -> None:
        seen: list[int] = []
        loop = asyncio.get_running_loop()

        def look(tx: Transaction) -> None:
            tx.commit([make.pair()], make.now)
            tx.finish()
            # The writer waits inside its transaction for what a reader sees meanwhile.
            seen.append(len(asyncio.run_coroutine_threadsafe(store.counts(), loop).result()))

        await do(store, look)
        assert seen == [0]
        assert len(await store.counts()) == 1

    using(tmp_path / "detent.db", use)


def test_a_commit_of_another_process_wakes_who_waits(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"

    async def use(store: SqliteStore, make: Own) -> None:
        async with stores.open(url_of(path), clock=make.clock) as other:
            waiting = asyncio.ensure_future(store.wait(30.0))
            await asyncio.sleep(0)
            await other.step([make.pair()], now=make.now)
            assert await waiting

    using(path, use)


def test_what_came_between_a_claim_and_a_wait_is_not_slept_through(tmp_path: Path) -> None:
    async def use(store: SqliteStore, make: Own) -> None:
        looked = await store.step([], now=make.now, want=make.want(1, holder="p"))
        await store.step([make.pair()], now=make.now)
        assert await store.wait(30.0, looked.claimed.seen)

    using(tmp_path / "detent.db", use)


def test_log_lines_of_one_transaction_have_cursors_without_gaps(tmp_path: Path) -> None:
    async def use(store: SqliteStore, make: Own) -> None:
        unit = make.pair()
        await store.step([unit], now=make.now)
        keys = [(new.job.tenant, new.job.id) for new in unit.new]
        line = Line(make.now, "hello")
        many = [store.append_logs([(key, line) for key in keys]) for _ in range(20)]
        cursors = await asyncio.gather(*many)
        assert sorted(map(list, cursors)) == [[number, number] for number in range(1, 21)]
        assert [one.pos for one in await store.log_tail()] == list(range(1, 41))

    using(tmp_path / "detent.db", use)


def test_two_who_seal_at_the_same_time_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"

    async def use(store: SqliteStore, make: Own) -> None:
        await store.step([make.pair() for _ in range(30)], now=make.now)
        async with stores.open(url_of(path), clock=make.clock) as other:
            sealing = [one.seal(limit=7) for one in (store, other) * 6]
            await asyncio.gather(*sealing)
        blocks = await store.blocks()
        assert [block.number for block in blocks] == list(range(1, len(blocks) + 1))
        assert sum(block.count for block in blocks) == 60
        leaves = [leaf(fed.event) for fed in await store.feed()]
        assert await do(store, stored_leaves) == leaves

    using(path, use)


def stored_leaves(tx: Transaction) -> list[bytes]:
    return [one for (one,) in tx.connection.execute("SELECT leaf FROM detent_leaves ORDER BY pos")]
