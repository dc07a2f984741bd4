"""A holder is stopped for longer than its lease: its rows decide whether it is lost, and late."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from detent.stores.api import Committed, LeaseAlive, Outcome, Unit
from detent.stores.sqlite import SqliteStore
from tests.contract.making import SECOND
from tests.sqlite.child import Own
from tests.sqlite.holder import NAME
from tests.sqlite.processes import Child, faults_of, rest_of, said, start, states, url_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "detent.db"


@contextmanager
def holder(how: str, path: Path) -> Iterator[Child]:
    """A process that holds its jobs, and goes on in the end whatever happens."""
    with start(how, url_of(path), module="tests.sqlite.holder") as child:
        assert said(child) == {"ready": True}
        try:
            yield child
        finally:
            child.send_signal(signal.SIGCONT)


def stopped(child: Child) -> None:
    """Let it begin, until it is stopped."""
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


async def in_line(store: SqliteStore) -> None:
    """Until the store waits for its turn to write."""
    writer = store._opened().writer  # noqa: SLF001 - nobody else can tell
    assert writer is not None
    async with asyncio.timeout(30):
        while not writer._turns._is_in_line:  # noqa: ASYNC110, SLF001 - a thread tells no loop
            await asyncio.sleep(0)


async def losses(store: SqliteStore, make: Own) -> list[Unit]:
    """What upkeep would do, by what it sees ten seconds later."""
    make.clock.move(10 * SECOND)
    due = await store.take_due(now=make.now, limit=10)
    return [make.ticking(one) for one in due]


async def declared(
    store: SqliteStore, make: Own, units: Sequence[Unit]
) -> tuple[Sequence[bool], Sequence[Outcome]]:
    """Upkeep has made up its mind: the worker is lost, and so is what is held over the wire."""
    lost = await store.declare_lost([NAME], now=make.now)
    return lost, (await store.step(units, now=make.now)).outcomes


def test_a_holder_that_was_stopped_while_it_renewed_is_not_lost(path: Path) -> None:
    async def main(child: Child) -> None:
        make = Own("upkeep")
        async with SqliteStore(path, make.clock) as store:
            assert isinstance(store, SqliteStore)
            [wired] = await losses(store, make)
            assert wired.moves[0].lost
            stopped(child)
            asked = asyncio.create_task(declared(store, make, [wired]))
            await in_line(store)
            child.send_signal(signal.SIGCONT)
            lost, [outcome] = await asked
            assert lost == [False]
            assert isinstance(outcome, LeaseAlive)

    with holder("writing", path) as child:
        asyncio.run(main(child))
        assert rest_of(child) == [
            {"renewed": [True, True]},
            {"outcomes": ["Committed", "Committed"]},
        ]
    assert set(states(path).values()) == {"completed"}
    assert faults_of(path) == []


def test_a_holder_that_was_stopped_and_renewed_nothing_is_lost_for_good(path: Path) -> None:
    async def main(child: Child) -> None:
        make = Own("upkeep")
        async with SqliteStore(path, make.clock) as store:
            assert isinstance(store, SqliteStore)
            stopped(child)
            lost, outcomes = await declared(store, make, await losses(store, make))
            assert (list(lost), list(outcomes)) == ([True], [Committed()])
            [owned] = await losses(store, make)
            assert owned.moves[0].lost
            assert (await store.step([owned], now=make.now)).outcomes == (Committed(),)

    with holder("idle", path) as child:
        asyncio.run(main(child))
        child.send_signal(signal.SIGCONT)
        assert rest_of(child) == [{"renewed": [False, False]}, {"outcomes": ["Stale", "Stale"]}]
    assert set(states(path).values()) == {"available"}
    assert faults_of(path) == []
