"""The store goes away and comes back, and processes stand still for longer than a lease."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from detent import Handle
from detent.host import children, members, state_of
from detent.lifecycle.profile import HEARTBEAT_LEASE_US
from tests.fleet.diaries import judge_diary, judge_order, runs_of
from tests.fleet.yard import Yard, outlast, slot_of
from tests.waiting import eventually, until
from tools.postgres import Server

pytestmark = pytest.mark.slow
LEASE_S = HEARTBEAT_LEASE_US / 1_000_000
LONGER_S = LEASE_S + 2.0
OPTIONS = ("--workers", "2", "--slots", "6", "--sync-slots", "4", "--grace", "10s")


@pytest.fixture
def program() -> str:
    return "diary.txt"


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """They stand still meanwhile."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def begun(yard: Yard, jobs: int) -> list[Handle[Any]]:
    """Some that go on until they are let go, and some that end by themselves."""
    handles = [yard.enqueue("held", number, "go") for number in range(4)]
    kinds = ("inside", "threaded", "apart")
    handles += [yard.enqueue(kinds[number % 3], number, 10) for number in range(4, jobs)]
    eventually(lambda: all(runs_of(yard.diary(), number) for number in range(4)))
    return handles


def finish(yard: Yard, handles: Sequence[Handle[Any]]) -> list[list[str]]:
    """Everything ends once, and all is well; answers what happened to each."""
    yard.let_go("go")
    assert [one.result(timeout=60) for one in handles] == list(range(len(handles)))
    histories = yard.events_of(handles)
    judge_diary(yard.diary(), histories)
    told = [[event.name for event in events] for events in histories]
    assert all(names.count("complete") == 1 for names in told)
    eventually(lambda: set(yard.states().values()) == {"Running"} and len(yard.workers()) == 2)
    assert yard.detent("verify")
    return told


@pytest.mark.campaign
def test_a_server_that_stands_still_for_longer_than_a_lease(server: Server, far: Yard) -> None:
    fleet = far.start(*OPTIONS)
    handles = begun(far, 8)
    handles.append(far.enqueue("blocking", 8, "go"))
    eventually(lambda: runs_of(far.diary(), 8))
    handles.append(far.enqueue("holding", 9))
    eventually(lambda: runs_of(far.diary(), 9))
    with stopped([server.process, *children(server.process)]):
        outlast(LONGER_S)
    # The one that blocks its loop blocks the next one as well, and the last may be in there.
    eventually(lambda: all(len(runs_of(far.diary(), number)) == 2 for number in range(4)))
    assert "could not be renewed; its jobs are stopped" in far.log(fleet)
    assert "did not stop its jobs, and is killed" in far.log(fleet)
    told = finish(far, handles)
    assert not any("lose" in names for names in told), "nobody pays for it"
    assert all("hand_back" in names for names in [*told[:4], *told[8:]])
    assert fleet.poll() is None


def test_nobody_pays_for_a_server_that_is_away(server: Server, far: Yard) -> None:
    fleet = far.start(*OPTIONS)
    handles = begun(far, 8)
    server.control("stop", "-m", "immediate")
    outlast(LONGER_S)
    server.control("start")
    eventually(lambda: all(len(runs_of(far.diary(), number)) == 2 for number in range(4)))
    assert "could not be renewed; its jobs are stopped" in far.log(fleet)
    told = finish(far, handles)
    assert all("hand_back" in names for names in told[:4])
    assert not any("lose" in names for names in told)
    said = " ".join(far.detent("jobs", "history", handles[0].id).split())
    assert "because the store was away" in said
    assert fleet.poll() is None


@pytest.mark.campaign
def test_a_fleet_that_is_stopped_while_its_store_is_away_says_so_within_its_time(
    server: Server, far: Yard
) -> None:
    fleet = far.start("--workers", "2", "--grace", "20s")
    handles = [far.enqueue("held", number, "go") for number in range(2)]
    eventually(lambda: all(runs_of(far.diary(), number) for number in range(2)))
    server.control("stop", "-m", "immediate")
    eventually(lambda: "its jobs are stopped" in far.log(fleet))
    fleet.send_signal(signal.SIGTERM)
    eventually(lambda: "it is told on" in far.log(fleet))
    server.control("start")
    assert fleet.wait(60) == 0, far.log(fleet)
    names = [[event.name for event in one] for one in far.events_of(handles)]
    assert names == [["enqueue", "claim", "hand_back", "due"]] * 2, far.log(fleet)


async def test_nobody_pays_where_a_program_works_itself(server: Server, far: Yard) -> None:
    async with far.app.working(slots=4):
        job = await far.app.jobs["held"].aenqueue(0, "go")
        await until(lambda: runs_of(far.diary(), 0))
        await asyncio.to_thread(server.control, "stop", "-m", "immediate")
        await asyncio.to_thread(outlast, LONGER_S)
        await asyncio.to_thread(server.control, "start")
        await until(lambda: len(runs_of(far.diary(), 0)) == 2)
        far.let_go("go")
        assert await job.aresult(timeout=60) == 0
        names = [event.name for event in await job.ahistory()]
        assert names == ["enqueue", "claim", "hand_back", "due", "claim", "complete"]
    await far.app.aclose()


@pytest.mark.campaign
def test_a_server_that_is_restarted_while_a_worker_stands_still(server: Server, far: Yard) -> None:
    fleet = far.start(*OPTIONS)
    handles = begun(far, 8)
    [worker] = far.pids_of("worker-1")
    with stopped(members(worker)):
        server.control("restart", "-m", "immediate")
        handles += [far.enqueue("inside", number, 2) for number in range(8, 16)]
        outlast(LONGER_S)
    told = finish(far, handles)
    assert not any("lose" in names for names in told), "its supervisor has renewed it"
    assert far.pids_of("worker-1") == [worker]
    assert fleet.poll() is None


@pytest.mark.campaign
def test_a_file_that_somebody_else_locks_for_longer_than_a_lease(yard: Yard) -> None:
    fleet = yard.start(*OPTIONS)
    handles = begun(yard, 8)
    other = sqlite3.connect(yard.folder / "detent.db", timeout=60, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    outlast(LONGER_S)
    other.execute("ROLLBACK")
    other.close()
    finish(yard, handles)
    assert fleet.poll() is None


# On a server, because a process that is stopped may keep a file locked.
@pytest.mark.parametrize("store", ["postgresql"])
def test_who_stood_still_finds_others_in_its_place(yard: Yard) -> None:
    """The supervisor and one of its workers stop. The other worker ends itself in time."""
    first = yard.start("--name", "first", "--workers", "2", "--slots", "1")
    jobs = [yard.enqueue("held", number, "go") for number in range(2)]
    eventually(lambda: all(runs_of(yard.diary(), number) for number in range(2)))
    [frozen] = yard.pids_of("worker-1")
    late = next(job for job in jobs if holder(job) == instance_in(yard, "worker-1"))
    with stopped([first.pid]):
        with stopped(members(frozen)):
            yard.start("--name", "second", "--workers", "2", "--slots", "1")
            eventually(lambda: all(len(runs_of(yard.diary(), n)) == 2 for n in range(2)))
            yard.let_go("go")
            assert [job.result(timeout=60) for job in jobs] == [0, 1]
        ended = late.history()
        eventually(lambda: state_of(frozen) in ("Z", None), "the late one ends by itself")
    eventually(lambda: sorted(map(slot_of, yard.workers())) == sorted(2 * ["worker-1", "worker-2"]))
    eventually(lambda: set(yard.states().values()) == {"Running"})
    assert late.history() == ended, "its late report changes nothing"
    for job, events in zip(jobs, yard.events_of(jobs), strict=True):
        names = [event.name for event in events]
        assert names == ["enqueue", "claim", "lose", "due", "claim", "complete"]
        if job is not late:
            judge_order(yard.diary(), jobs.index(job))
    # The supervisor writes down what they said while it stood still.
    logs = yard.folder / ".detent/first/logs"
    said = "does not renew this worker any more"
    eventually(lambda: any(said in one.read_text() for one in logs.glob("*.log")))
    assert first.poll() is None
    assert yard.detent("verify")


def holder(job: Handle[Any]) -> str:
    """Who has claimed it last."""
    return next(event.actor_id for event in reversed(job.history()) if event.name == "claim")


def instance_in(yard: Yard, slot: str) -> str:
    return next(one.id for one in yard.workers() if slot_of(one) == slot)
