"""Who waits alone for its jobs sends them from where it stands, whatever happens to it there."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeAlias

import psycopg
import pytest

from detent import Detent
from detent.app.job import Job
from detent.runtime import lone_loop
from detent.stores.postgres import nearby
from detent.stores.postgres.nearby import NAME
from tests.postgres.running import sql
from tests.postgres.server import databases
from tests.postgres.test_nearby import ENOUGH, THERE, stored, there
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.usefixtures("ctrl_c")
Noop: TypeAlias = Job[..., Any, ..., Any]
_USED = f"{THERE} AND state = 'idle' AND query LIKE 'WITH%%'"
_WAITS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
_END = f"SELECT pg_terminate_backend(pid) FROM ({THERE}) AS there"  # noqa: S608 - ours


@pytest.fixture
def url(tmp_path: Path) -> str:
    return databases().of(tmp_path)


@pytest.fixture
def app(url: str) -> Iterator[Detent]:
    with Detent(url) as app:
        yield app


@pytest.fixture
def noop(app: Detent) -> Noop:
    @app.job
    def noop(number: int) -> None:
        """Nothing."""

    return noop


def come(noop: Noop, url: str) -> int:
    """Come again and again, until a job went over a connection; how often that was.

    Nothing else makes the loop turn in which it is opened.
    """
    deadline = time.monotonic() + PATIENCE_S
    for number in count(1):
        noop.enqueue(number)
        if number >= ENOUGH and there(url, _USED):
            break
        assert time.monotonic() < deadline, "nobody has opened a connection"
    return number


@contextmanager
def blocked(url: str) -> Iterator[psycopg.Connection]:
    """While nobody can enqueue anything."""
    with psycopg.connect(url) as one:
        one.execute("LOCK TABLE detent.tallies IN SHARE MODE")
        yield one


@contextmanager
def answered(number: int, by: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """While a signal calls this."""
    before = signal.signal(number, by)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def knocking(url: str, number: int) -> Iterator[None]:
    """As soon as somebody's statement waits for a lock the signal comes."""

    def knock() -> None:
        eventually(lambda: sql(url, _WAITS), "it waits for the table")
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=knock)
    thread.start()
    yield
    thread.join()


def test_it_is_stored_from_there_and_hangs_up_with_the_app(
    url: str, app: Detent, noop: Noop
) -> None:
    came = come(noop, url)
    assert stored(url) == [came] * 3
    app.close()
    eventually(lambda: not there(url), "its connection is closed with the app")
    # Whoever goes on afterwards begins anew.
    came += come(noop, url)
    assert stored(url) == [came] * 3


def test_threads_share_one_connection(url: str, noop: Noop) -> None:
    came = come(noop, url)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(noop.enqueue, range(400)))
    assert stored(url) == [came + 400] * 3
    assert len(there(url)) == 1


def test_who_stays_away_is_hung_up_on(
    url: str, noop: Noop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_loop, "_IDLE_S", 0.1)
    came = 0
    for _ in range(2):
        came += come(noop, url)
        eventually(lambda: not there(url), "nobody uses it")
    assert stored(url) == [came] * 3


def test_who_seldom_comes_opens_none(url: str, noop: Noop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "_PAUSE_S", 0.0)
    for number in range(2 * ENOUGH):
        noop.enqueue(number)
    assert not there(url)


def test_a_cut_connection_costs_nobody_a_job(url: str, noop: Noop) -> None:
    came = come(noop, url)
    sql(url, _END, NAME)
    noop.enqueue(0)
    assert stored(url) == [came + 1] * 3


def test_who_is_interrupted_leaves_nothing_behind(
    url: str, noop: Noop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_loop, "_IDLE_S", 3_600.0)
    came = come(noop, url)
    with blocked(url):
        with pytest.raises(KeyboardInterrupt), knocking(url, signal.SIGINT):
            noop.enqueue(0)
        eventually(lambda: not there(url), "it has hung up")
    came += come(noop, url)
    assert stored(url) == [came] * 3


def test_where_a_signal_may_raise_anything_one_crosses(url: str, noop: Noop) -> None:
    def leave(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError

    with answered(signal.SIGALRM, leave):
        for number in range(2 * ENOUGH):
            noop.enqueue(number)
        assert not there(url)
        with blocked(url), pytest.raises(TimeoutError), knocking(url, signal.SIGALRM):
            noop.enqueue(0)
        with ThreadPoolExecutor(1) as thread:
            # Signals are answered in the main thread alone.
            assert thread.submit(come, noop, url).result()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_each_has_its_own(url: str, noop: Noop) -> None:
    came = come(noop, url)
    child = os.fork()
    if not child:
        try:
            os._exit(not come(noop, url))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    noop.enqueue(0)
    [(jobs,)] = sql(url, "SELECT count(*) FROM detent.jobs")
    assert jobs > came + ENOUGH
    assert stored(url) == [jobs] * 3
