"""Whoever is kept waiting is told so in the end, and by whom; when the cause goes, all goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.errors import ReadTooLong, StoreBroken, StoreCorrupt, StoreUnavailable
from detent.stores.api import Committed, Store, Unit
from detent.stores.select import Filter
from detent.stores.sqlite import SqliteStore
from detent.stores.sqlite.faults import broken, translated
from detent.stores.sqlite.patience import Patience
from detent.stores.sqlite.statements import split
from detent.stores.sqlite.turns import Turns
from tests.sqlite.child import Own
from tests.sqlite.processes import Child, faults_of, go, rest_of, said, start, states, url_of

SHORT = Patience(turn_s=0.05)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with tables in it."""
    path = tmp_path / "detent.db"

    async def open_and_close() -> None:
        async with SqliteStore(path, Own("p").clock):
            pass

    asyncio.run(open_and_close())
    return path


@pytest.fixture
def child(path: Path) -> Iterator[Child]:
    """A process that will be stopped in the middle of a transaction, when it is told to go."""
    with start("stop_inside", url_of(path), "child") as child:
        yield child
        child.kill()


def stop(child: Child) -> None:
    """Let it begin, until it is stopped."""
    go([child])
    assert len(said(child)["pushed"]) == 2
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


async def refused(store: Store, make: Own, unit: Unit) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as refused:
        await store.step([unit], now=make.now)
    return refused.value


async def insist(store: Store, make: Own, unit: Unit) -> None:
    """Try again for as long as the error says that this helps."""
    while True:
        try:
            assert (await store.step([unit], now=make.now)).outcomes == (Committed(),)
        except StoreUnavailable as error:
            if not error.retryable:
                raise
        else:
            return


def test_a_stopped_process_is_named_to_those_who_wait_and_nothing_is_lost(
    path: Path, child: Child
) -> None:
    make = Own("p")
    first, second, late = make.pair(), make.pair(), make.pair()

    async def use() -> None:
        async with SqliteStore(path, make.clock, patience=SHORT) as store:
            await insist(store, make, first)
            stop(child)
            errors = await asyncio.gather(*(refused(store, make, late) for _ in range(3)))
            errors.append(await refused(store, make, late))
            assert {error.fields["holder_pid"] for error in errors} == {child.pid}
            assert len(await store.get([("", first.new[0].job.id)])) == 1
            child.send_signal(signal.SIGCONT)
            await insist(store, make, second)

    asyncio.run(use())
    spoken = rest_of(child)
    assert child.returncode == 0
    acknowledged = {job for line in spoken for job in line["pushed"]}
    assert len(acknowledged) == 4
    acknowledged |= {new.job.id for unit in (first, second) for new in unit.new}
    found = set(states(path))
    assert acknowledged <= found
    assert not {new.job.id for new in late.new} & found
    assert faults_of(path) == []


def test_opening_and_closing_do_not_hang_on_a_stopped_process(path: Path, child: Child) -> None:
    make = Own("p")

    async def use() -> None:
        async with SqliteStore(path, make.clock, patience=SHORT) as store:
            await insist(store, make, make.pair())
            stop(child)
            with pytest.raises(StoreUnavailable, match=f"Process {child.pid}"):
                await SqliteStore(path, make.clock, patience=SHORT).__aenter__()

    asyncio.run(use())
    child.send_signal(signal.SIGCONT)
    assert [len(line["pushed"]) for line in rest_of(child)] == [2, 2]
    assert len(states(path)) == 8
    assert faults_of(path) == []


def test_a_turn_that_comes_too_late_is_passed_on(path: Path) -> None:
    holder, waiting, gone = Turns(path), Turns(path, 0.01), Turns(path, 0.01)
    with holder:
        for one in (waiting, waiting, gone):
            with pytest.raises(StoreUnavailable), one:
                pass
        gone.close()
    for one in (holder, waiting, Turns(path)):
        with one:
            pass
        one.close()


def test_whoever_takes_a_turn_signs_for_it(path: Path) -> None:
    turns = Turns(path)
    lock = path.with_name(f"{path.name}-lock")
    lock.write_text("somebody else")
    with turns:
        assert int(lock.read_text("utf-8")) == os.getpid()
    lock.write_text("nobody")
    with turns, pytest.raises(StoreUnavailable) as refused, Turns(path, 0.01):
        pass
    assert refused.value.fields["holder_pid"] == os.getpid()
    turns.close()


async def test_a_question_that_takes_too_long_is_given_up_and_the_next_is_answered(
    path: Path,
) -> None:
    make = Own("p")
    connection = sqlite3.connect(path, isolation_level=None)
    values = {"state": "available", "first": 1, "last": 20_000, "is_over": False}
    for statement in split(Path(__file__).with_name("grow.sql").read_text("utf-8")):
        connection.execute(statement, values)
    connection.close()

    async with SqliteStore(path, make.clock, patience=Patience(read_s=0.0)) as store:
        with pytest.raises(ReadTooLong) as refused:
            await store.find(Filter(queue="a queue that is nowhere"))
        assert refused.value.code == "read_too_long"
        assert not refused.value.retryable
        [found] = await store.get([("", "job-00000001")])
        assert found is not None
    async with SqliteStore(path, make.clock) as store:
        assert await store.find(Filter(queue="a queue that is nowhere")) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_IOERR_WRITE, StoreBroken),
        (sqlite3.SQLITE_CANTOPEN, StoreBroken),
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt),
    ],
)
def test_an_open_store_that_must_not_go_on_says_that_trying_again_is_no_use(
    code: int, kind: type[Exception]
) -> None:
    error = sqlite3.OperationalError("the disk is gone")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "NAME"
    told = broken(error)
    assert type(told) is kind
    assert not told.retryable
    # To whoever only reads, or opens it, the next try is a new one.
    assert translated(error).retryable is (kind is StoreBroken)


def test_a_file_that_may_not_be_opened_is_told_apart_from_bad_luck(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError) as refused:
        sqlite3.connect(f"file:{tmp_path}/none/x.db?mode=rw", uri=True)
    told = translated(refused.value)
    assert (told.code, "see who owns it" in told.message) == ("store_unavailable", True)
