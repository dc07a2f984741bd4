"""Heartbeats: one write for all, and never a belief that the store does not share."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detent import stores
from detent.errors import StoreUnavailable
from detent.runtime.beating import Beating, Hearing, Pace
from detent.stores import api
from detent.stores.api import Death, Store, Who, WorkerRow
from detent.stores.memory import MemoryStore
from tests.contract.making import Clock

PACE = Pace(every_s=0.05, lease_s=0.6, margin_s=0.2, retry_s=0.02, timeout_s=0.1)
DEADLINE_S = 10.0


class Shaky(MemoryStore):
    """A store whose connection fails, hangs or is slow when it is told to."""

    def __init__(self) -> None:
        self.time = Clock()
        super().__init__(self.time)
        self.trouble: Callable[[], object] | None = None
        self.beats: list[list[str]] = []
        self.buried = 0

    async def _stumble(self) -> None:
        comes = self.trouble() if self.trouble is not None else None
        if isinstance(comes, asyncio.Event):
            await comes.wait()

    async def beat(self, workers: Sequence[WorkerRow], *, now: int) -> Sequence[bool]:
        await self._stumble()
        self.beats.append([row.id for row in workers])
        return await super().beat(workers, now=now)

    async def bury(self, deaths: Sequence[api.Death], *, now: int) -> Sequence[bool]:
        await self._stumble()
        self.buried += len(deaths)
        return await super().bury(deaths, now=now)


def down() -> None:
    raise StoreUnavailable("it is down")


def hanging() -> asyncio.Event:
    return asyncio.Event()


class Heard:
    """What was heard, in its order, and how long each was still trusted then."""

    def __init__(self) -> None:
        self.words: list[tuple[str, str]] = []
        self.left_s: list[float] = []
        self.beating: Beating | None = None

    def hearing(self) -> Hearing:
        return Hearing(self._listener("lapsed"), self._listener("lost"))

    def _listener(self, word: str) -> Callable[[Sequence[str]], None]:
        def listen(ids: Sequence[str]) -> None:
            self.words += [(word, one) for one in ids]
            assert self.beating is not None
            self.left_s += [self.beating.proven_s(one) for one in ids]

        return listen

    async def until(self, *words: tuple[str, str]) -> None:
        await true(lambda: self.words[: len(words)] == list(words) or None)


async def true(is_so: Callable[[], object]) -> None:
    """Until it is so."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0)


@asynccontextmanager
async def beating(*names: str, pace: Pace = PACE) -> AsyncIterator[tuple[Shaky, Beating, Heard]]:
    """A beating that runs for these instances, which are registered."""
    heard, store = Heard(), Shaky()
    async with store:
        one = heard.beating = Beating(store, heard.hearing(), pace)
        for name in names:
            one.add(WorkerRow(name, 0, who=Who(supervisor="s1")))
        running = asyncio.create_task(one.run())
        try:
            for name in names:
                await one.registered(name)
            yield store, one, heard
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_all_instances_are_renewed_by_one_call() -> None:
    async with beating("w1", "w2", "w3") as (store, one, _):
        first = len(store.beats)
        await true(lambda: len(store.beats) > first + 2)
        assert all(sorted(some) == ["w1", "w2", "w3"] for some in store.beats)
        await one.gone("w2")
        before = len(store.beats)
        await true(lambda: len(store.beats) > before + 2)
        assert sorted(store.beats[-1]) == ["w1", "w3"]


async def test_one_that_is_added_is_registered_before_its_turn_would_come() -> None:
    slow = Pace(every_s=3_600, lease_s=7_200)
    async with beating("w1", pace=slow) as (_, one, _heard):
        one.add(WorkerRow("w2", 0, who=Who()))
        async with asyncio.timeout(DEADLINE_S):
            await one.registered("w2")


async def test_what_is_proven_counts_from_before_the_call_and_is_what_the_store_says() -> None:
    async with (store := Shaky()):
        heard = Heard()
        at = [0.0]
        pace = Pace(lease_s=60)
        one = heard.beating = Beating(store, heard.hearing(), pace, clock=lambda: at[0])
        one.add(WorkerRow("w1", 0))
        store.trouble = lambda: at.__setitem__(0, 0.3)
        before = store.now()
        await one.beat()
        [row] = await store.workers()
        assert row.alive_until == before + 60_000_000
        assert one.proven_s("w1") == pytest.approx(59.7)
        assert one.proven_s("nobody") == 0


@pytest.mark.parametrize("trouble", [down, hanging])
async def test_who_cannot_be_renewed_lapses_once_and_in_time(trouble: Callable[[], object]) -> None:
    async with beating("w1", "w2") as (store, one, heard):
        store.trouble = trouble
        await heard.until(("lapsed", "w1"), ("lapsed", "w2"))
        # A busy machine may be late, but not so late that the lease is over.
        assert all(left > 0 for left in heard.left_s)
        await true(lambda: one.proven_s("w1") == 0)
        store.trouble = None
        await true(lambda: one.proven_s("w1") > 0)
        store.trouble = trouble
        await true(lambda: one.proven_s("w1") == 0)
        assert len(heard.words) == 2


async def test_who_was_declared_lost_is_told_so_once_and_never_renewed_again() -> None:
    async with beating("w1", "w2") as (store, one, heard):
        await store.bury([Death("w1", "s1")], now=store.now())
        await heard.until(("lost", "w1"))
        before = len(store.beats)
        await true(lambda: len(store.beats) > before + 2)
        assert store.beats[-1] == ["w2"]
        assert heard.words == [("lost", "w1")]
        assert one.proven_s("w1") == 0


async def test_who_was_forgotten_meanwhile_does_not_come_back() -> None:
    async with beating("w1") as (store, _, heard):
        await store.bury([Death("w1", "s1")], now=store.now())
        await store.forget_workers(before=store.now() + 1, now=store.now())
        await heard.until(("lost", "w1"))
        assert list(await store.workers()) == []


async def test_an_end_is_told_at_once_with_how_it_came() -> None:
    async with beating("w1", "w2") as (store, one, heard):
        assert await one.gone("w1", "oom", -9)
        [row] = await store.workers(gone=True)
        assert row.death == Death("w1", "s1", cause="oom", exit_code=-9)
        assert not await one.gone("w1")
        assert heard.words == []


async def test_an_end_that_could_not_be_told_is_told_later() -> None:
    async with beating("w1") as (store, one, _):
        store.trouble = down
        assert not await one.gone("w1", "exit_code", 3)
        store.trouble = None
        await true(lambda: store.buried)
        [row] = await store.workers(gone=True)
        assert row.death == Death("w1", "s1", cause="exit_code", exit_code=3)


async def test_who_was_stopped_because_it_could_not_be_renewed_is_told_to_be_so() -> None:
    async with beating("w1") as (store, one, heard):
        store.trouble = down
        await heard.until(("lapsed", "w1"))
        assert not await one.gone("w1", "exit_code", 75)
        assert not one.is_told
        store.trouble = None
        await one.buried()
        [row] = await store.workers(gone=True)
        assert row.death == Death("w1", "s1", cause="exit_code", exit_code=75, lapsed=True)


async def test_who_was_stopped_for_that_was_so_also_if_it_is_renewed_before_its_end() -> None:
    """The store is back while the worker still stops: its jobs were charged a loss."""
    async with beating("w1") as (store, one, heard):
        store.trouble = down
        await heard.until(("lapsed", "w1"))
        store.trouble = None
        before = len(store.beats)
        await true(lambda: len(store.beats) > before + 1)
        assert await one.gone("w1", "exit_code", 75)
        [row] = await store.workers(gone=True)
        assert row.death == Death("w1", "s1", cause="exit_code", exit_code=75, lapsed=True)


async def test_a_clock_that_jumps_changes_nothing_about_what_is_proven() -> None:
    async with beating("w1") as (store, one, heard):
        for jump in (7_200, -3_600):
            store.time.move(jump * 1_000_000)
            before = len(store.beats)
            await true(lambda before=before: len(store.beats) > before + 1)  # type: ignore[misc]
            [row] = await store.workers()
            assert row.alive_until == store.now() + 600_000
            assert 0 < one.proven_s("w1") <= 0.6
        assert heard.words == []


def test_a_listener_that_fails_does_not_stop_the_beats(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Sequence[str]) -> None:
        raise RuntimeError("boom")

    async def run() -> None:
        async with (store := Shaky()):
            one = Beating(store, Hearing(fail, fail), PACE)
            one.add(WorkerRow("w1", 0, who=Who(supervisor="s1")))
            one.add(WorkerRow("w2", 0, who=Who(supervisor="s1")))
            await one.beat()
            await store.bury([Death("w1", "s1")], now=store.now())
            await one.beat()
            await one.beat()
            assert store.beats[-1] == ["w2"]

    asyncio.run(run())
    assert "a listener to heartbeats failed" in caplog.text


def test_a_stopped_process_lapses_before_anything_else_and_hears_that_it_is_lost(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/detent.db"
    command = [sys.executable, str(Path(__file__).with_name("beater.py")), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "registered w1\n"
            os.kill(child.pid, signal.SIGSTOP)
            asyncio.run(_declared_lost(url))
            os.kill(child.pid, signal.SIGCONT)
            assert [child.stdout.readline() for _ in range(2)] == ["lapsed w1\n", "lost w1\n"]
        finally:
            child.kill()


async def _declared_lost(url: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    async with stores.open(url) as store:
        while not await _is_over(store):
            assert time.monotonic() < deadline
            await asyncio.sleep(0)


async def _is_over(store: Store) -> bool:
    now = store.now()
    over = [row.id for row in await store.overdue(now=now)]
    return bool(over) and all(await store.declare_lost(over, now=now))
