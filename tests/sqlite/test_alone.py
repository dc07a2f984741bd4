"""A caller that waits writes a job by itself if nobody else writes: whatever happens to it then."""

from __future__ import annotations

import asyncio
import gc
import queue
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from detent.errors import StoreClosed, StoreError
from detent.stores.api import Committed, Outcome, Own, Rejected
from detent.stores.sqlite import SqliteStore
from detent.stores.sqlite.connection import BUSY_MS
from detent.stores.sqlite.transaction import Transaction
from detent.stores.sqlite.turns import Turns
from tests.contract.making import Clock
from tests.sqlite.processes import ended, faults_of, start, states, url_of
from tests.sqlite.ways import lone
from tests.waiting import until


class Alone:
    """A store, and who writes one job after the other to it."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.store = SqliteStore(path, self.clock)
        self.stored: list[str] = []
        self._names = count(1)

    def bear(self, name: str = "", payload: str = "[]") -> Outcome:
        """One more job, in this thread."""
        name = name or f"{threading.get_ident()}-{next(self._names)}"
        [outcome] = self.store.step_here(
            lone(name, self.clock(), payload), now=self.clock()
        ).outcomes
        if outcome == Committed():
            self.stored.append(name)
        return outcome

    @contextmanager
    def traced(self) -> Iterator[list[tuple[str, int]]]:
        """Which statements are run, and in which thread."""
        seen: list[tuple[str, int]] = []
        connection = self.store._writing()._connection  # noqa: SLF001 - nobody else gets there
        connection.set_trace_callback(lambda sql: seen.append((sql, threading.get_ident())))
        yield seen
        connection.set_trace_callback(None)

    def need_free(self) -> None:
        """Nobody has kept anything: not the pen, nor the turn, nor a transaction."""
        writer = self.store._writing()  # noqa: SLF001 - the same
        assert writer._pen._lying.qsize() == 1  # noqa: SLF001 - the same
        assert not writer._connection.in_transaction  # noqa: SLF001 - the same
        with Turns(self.store._path, 1.0):  # noqa: SLF001 - the same
            pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "detent.db"


def using(path: Path, use: Callable[[Alone], Awaitable[int | None]]) -> None:
    """Use it, and look afterwards: all that was acknowledged is there.

    What `use` answers is how many there may be that nobody heard of.
    """

    async def main() -> int:
        async with alone.store:
            more = await use(alone)
            alone.need_free()
            return more or 0

    alone = Alone(path)
    more = asyncio.run(main())
    found = states(path)
    assert set(alone.stored) <= set(found)
    assert len(alone.stored) <= len(found) <= len(alone.stored) + more
    assert faults_of(path) == []


def test_who_waits_alone_writes_in_its_own_thread_and_all_in_one_commit(path: Path) -> None:
    async def use(alone: Alone) -> None:
        with alone.traced() as seen:
            assert alone.bear() == Committed()
        assert {thread for _, thread in seen} == {threading.get_ident()}
        words = [sql.split()[0] for sql, _ in seen if not sql.startswith("--")]
        assert words == ["BEGIN", *["INSERT"] * 5, "COMMIT"]

    using(path, use)


def test_who_finds_others_there_waits_with_them(path: Path) -> None:
    async def use(alone: Alone) -> None:
        writer = alone.store._writing()  # noqa: SLF001 - nobody else gets there
        inside, go = threading.Event(), threading.Event()

        def hold(_: Transaction) -> None:
            inside.set()
            assert go.wait(30)

        held = asyncio.ensure_future(writer.do(hold))
        await asyncio.to_thread(inside.wait, 30)
        waiting = [asyncio.ensure_future(asyncio.to_thread(alone.bear)) for _ in range(3)]
        await until(lambda: len(writer._queue) == 3, "all wait")  # noqa: SLF001
        with alone.traced() as seen:
            go.set()
            assert await asyncio.gather(*waiting) == [Committed()] * 3
            await held
        assert [sql for sql, _ in seen].count("COMMIT") <= 2, "that of the first, and one for all"
        assert len({thread for _, thread in seen}) == 1

    using(path, use)


def test_what_the_database_refuses_is_told_by_the_thread_that_writes(path: Path) -> None:
    async def use(alone: Alone) -> None:
        assert alone.bear("twice") == Committed()
        assert alone.bear("twice") == Own()
        assert isinstance(alone.bear("bad", '["\ud800"]'), Rejected)
        alone.need_free()
        assert alone.bear() == Committed()

    using(path, use)


def test_the_turn_of_another_process_is_waited_for(path: Path) -> None:
    async def use(alone: Alone) -> None:
        with Turns(path):
            waiting = asyncio.ensure_future(asyncio.to_thread(alone.bear))
            turns = alone.store._writing()._turns  # noqa: SLF001 - nobody else gets there
            await until(lambda: turns.is_in_line, "it stands in line")
            assert not waiting.done()
        assert await waiting == Committed()

    using(path, use)


def test_somebodys_own_transaction_is_waited_for(path: Path) -> None:
    async def use(alone: Alone) -> None:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        ending = threading.Timer(0.05, other.execute, ["COMMIT"])
        ending.start()
        assert alone.bear() == Committed()
        ending.join()
        other.close()

    using(path, use)


class Struck(Exception):
    """Raised wherever the main thread is at that moment."""


CHANCE = random.Random(7)


@contextmanager
def strikes(handler: Callable[[], None]) -> Iterator[None]:
    """Let a signal come at any moment, and after it has been dealt with another one."""

    def strike(*_: object) -> None:
        handler()
        arm()

    def arm() -> None:
        signal.setitimer(signal.ITIMER_REAL, CHANCE.uniform(0.0001, 0.0009))

    before = signal.signal(signal.SIGALRM, strike)
    # What is raised in a callback of the collector is heard by nobody, and there would be no more.
    gc.disable()
    arm()
    try:
        yield
    finally:
        # One that is still on its way must not arm another, which would end the process.
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()


def test_signals_that_raise_leave_nothing_half_done_and_nothing_held(path: Path) -> None:
    struck = count()

    def strike() -> None:
        next(struck)
        raise Struck

    async def use(alone: Alone) -> int:
        tried = 0
        while tried < 1_500:
            try:
                with strikes(strike):
                    while tried < 1_500:
                        tried += 1
                        alone.bear()
            except Struck:
                alone.need_free()
        number = next(struck)
        assert number > 20, "hardly anybody was struck"
        assert alone.bear() == Committed()
        return number

    using(path, use)


def test_a_signal_is_heard_while_somebody_keeps_the_file_locked(path: Path) -> None:
    """And who is not interrupted waits for as long as before."""

    def strike(_number: int, _frame: object) -> None:
        raise InterruptedError

    async def use(alone: Alone) -> int:
        own = sqlite3.connect(path, isolation_level=None)
        own.execute("BEGIN IMMEDIATE")
        before, began = signal.signal(signal.SIGALRM, strike), time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with pytest.raises(InterruptedError):
                alone.bear()
        finally:
            signal.signal(signal.SIGALRM, before)
        assert time.monotonic() - began < BUSY_MS / 2_000, "SQLite itself would wait for all of it"
        patient = asyncio.ensure_future(asyncio.to_thread(alone.bear))
        with alone.traced() as seen:
            await until(lambda: len(seen) > 2, "it tries again")
        assert {one for one, _ in seen} == {"BEGIN IMMEDIATE"}
        own.rollback()
        own.close()
        assert await patient == Committed()
        return 1

    using(path, use)


def test_a_signal_handler_may_enqueue_itself(path: Path) -> None:
    async def use(alone: Alone) -> None:
        inside: list[Outcome] = []
        with strikes(lambda: inside.append(alone.bear())):
            for _ in range(300):
                alone.bear()
        assert set(inside) == {Committed()}

    using(path, use)


def test_threads_and_coroutines_beside_each_other_lose_nothing(path: Path) -> None:
    async def use(alone: Alone) -> None:

        def many() -> None:
            for _ in range(60):
                assert alone.bear() == Committed()

        async def awaited(number: int) -> None:
            for at in range(20):
                name = f"awaited-{number}-{at}"
                births = lone(name, alone.clock())
                stepped = await alone.store.step(births, now=alone.clock())
                assert stepped.outcomes == (Committed(),)
                alone.stored.append(name)

        threads = [asyncio.to_thread(many) for _ in range(3)]
        await asyncio.gather(*threads, *(awaited(number) for number in range(5)))
        events = [fed.pos for fed in await alone.store.feed(limit=1_000)]
        assert events == list(range(1, 3 * 60 + 5 * 20 + 1))

    using(path, use)


@pytest.mark.parametrize("number", range(3))
def test_a_store_that_is_closed_meanwhile_finishes_what_was_begun(path: Path, number: int) -> None:
    alone, ends = Alone(path), queue.SimpleQueue[StoreError]()

    def until_closed() -> None:
        try:
            while True:
                alone.bear()
        except StoreError as error:
            ends.put(error)

    async def main() -> None:
        async with alone.store:
            for thread in threads:
                thread.start()
            await until(lambda: len(alone.stored) > number, "some are born")

    threads = [threading.Thread(target=until_closed) for _ in range(2)]
    asyncio.run(main())
    for thread in threads:
        thread.join(30)
        assert isinstance(ends.get(timeout=30), StoreClosed)
    assert sorted(states(path)) == sorted(alone.stored)
    assert faults_of(path) == []


def test_a_fork_while_somebody_writes_harms_neither(path: Path) -> None:
    [spoken] = ended([start("fork_beside", url_of(path), "f")])
    assert [line for line in spoken if "refused" in line] == [{"refused": "store_closed"}] * 5
    [born] = [line["bore"] for line in spoken if "bore" in line]
    assert born > 0
    assert len(states(path)) == born
    assert faults_of(path) == []


def test_processes_that_write_alone_take_turns(path: Path) -> None:
    children = [start("bear_many", url_of(path), f"p{number}") for number in range(3)]
    told = [line for lines in ended(children) for line in lines]
    assert sum(line["bore"] for line in told) == len(states(path)) == 3 * 100
    assert faults_of(path) == []
