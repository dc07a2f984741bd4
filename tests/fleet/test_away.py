"""The store goes away and comes back, and processes stand still for longer than a lease."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from detent import Handle, stores
from detent.host import children, members
from detent.lifecycle.profile import HEARTBEAT_LEASE_US
from tests.fleet.diaries import judge_diary, runs_of
from tests.fleet.yard import Yard
from tests.waiting import eventually
from tools.postgres import QUICK, Server

pytestmark = pytest.mark.slow
LEASE_S = HEARTBEAT_LEASE_US / 1_000_000
LONGER_S = LEASE_S + 2.0
OPTIONS = ("--workers", "2", "--slots", "6", "--sync-slots", "4", "--grace", "10s")


@pytest.fixture
def program() -> str:
    return "diary.txt"


@pytest.fixture
def server() -> Iterator[Server]:
    """A database server that nobody else uses, and that forgets nothing when it is killed."""
    with Server(**{**QUICK, "synchronous_commit": "on"}) as server:
        yield server


@pytest.fixture
def far(server: Server, program: str, tmp_path: Path) -> Iterator[Yard]:
    """A yard whose store is on that server."""
    url = server.url("postgres")
    stores.run_migrations(url)
    yard = Yard(tmp_path, url, program)
    try:
        yield yard
    finally:
        yard.close()


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


def test_a_server_that_stands_still_for_longer_than_a_lease(server: Server, far: Yard) -> None:
    fleet = far.start(*OPTIONS)
    handles = begun(far, 20)
    handles.append(far.enqueue("blocking", 20, "go"))
    eventually(lambda: runs_of(far.diary(), 20))
    with stopped([server.process, *children(server.process)]):
        time.sleep(LONGER_S)
    eventually(lambda: all(len(runs_of(far.diary(), number)) == 2 for number in (0, 1, 2, 3, 20)))
    assert "could not be renewed; its jobs are stopped" in far.log(fleet)
    assert "did not stop its jobs, and is killed" in far.log(fleet)
    told = finish(far, handles)
    assert all("lose" in names for names in told[:4])
    assert fleet.poll() is None


def test_a_server_that_is_restarted_while_a_worker_stands_still(server: Server, far: Yard) -> None:
    fleet = far.start(*OPTIONS)
    handles = begun(far, 20)
    [worker] = far.pids_of("worker-1")
    with stopped(members(worker)):
        server.control("restart", "-m", "immediate")
        handles += [far.enqueue("inside", number, 2) for number in range(20, 30)]
        time.sleep(LONGER_S)
    told = finish(far, handles)
    assert not any("lose" in names for names in told), "its supervisor has renewed it"
    assert far.pids_of("worker-1") == [worker]
    assert fleet.poll() is None


def test_a_file_that_somebody_else_locks_for_longer_than_a_lease(yard: Yard) -> None:
    fleet = yard.start(*OPTIONS)
    handles = begun(yard, 20)
    other = sqlite3.connect(yard.folder / "detent.db", timeout=60, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    time.sleep(LONGER_S)
    other.execute("ROLLBACK")
    other.close()
    finish(yard, handles)
    assert fleet.poll() is None


def test_a_supervisor_that_stood_still_finds_its_workers_replaced(yard: Yard) -> None:
    first = yard.start("--name", "first")
    job = yard.enqueue("held", 0, "go")
    eventually(lambda: runs_of(yard.diary(), 0))
    with stopped([first.pid]):
        yard.start("--name", "second")
        eventually(lambda: len(runs_of(yard.diary(), 0)) == 2, "somebody else takes over")
    [names] = finish(yard, [job])
    assert names == ["enqueue", "claim", "lose", "due", "claim", "complete"]
    assert first.poll() is None
    logs = (yard.folder / ".detent" / "first" / "logs").glob("*")
    assert any("does not renew this worker any more" in one.read_text() for one in logs)


@pytest.mark.parametrize("store", ["postgresql"])  # a stopped process may keep a file locked
def test_a_late_report_changes_nothing(yard: Yard) -> None:
    first = yard.start("--name", "first")
    job = yard.enqueue("held", 0, "go")
    eventually(lambda: runs_of(yard.diary(), 0))
    [worker] = yard.pids_of("worker-1")
    with stopped([first.pid]):
        with stopped(members(worker)):
            yard.start("--name", "second")
            eventually(lambda: len(runs_of(yard.diary(), 0)) == 2, "somebody else takes over")
            yard.let_go("go")
            assert job.result(timeout=30) == 0
        ended = job.history()
    eventually(lambda: worker not in yard.processes(), "the late one ends")
    eventually(lambda: yard.states() == {"worker-1": "Running"} and len(yard.workers()) == 2)
    assert job.history() == ended
    assert yard.detent("verify")
