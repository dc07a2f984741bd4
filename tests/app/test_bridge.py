"""One loop for everybody: after a fork, when somebody stops waiting, when it is stopped."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from detent import Detent
from detent.errors import InsideLoop, StoreClosed
from detent.runtime.bridge import Bridge


async def where() -> int:
    return threading.get_ident()


def test_everything_runs_in_one_thread_of_its_own() -> None:
    bridge = Bridge()
    first = bridge.run(where())
    assert first != threading.get_ident()
    assert bridge.run(where()) == first
    assert asyncio.run(bridge.reach(where())) == first
    bridge.stop()
    bridge.stop()


def test_who_is_there_already_need_not_cross() -> None:
    async def twice() -> int:
        return await bridge.reach(where())

    bridge = Bridge()
    assert bridge.run(twice()) == bridge.run(where())
    bridge.stop()


@pytest.mark.usefixtures("ctrl_c")
def test_who_waits_alone_runs_it_where_it_is() -> None:
    bridge = Bridge()
    assert bridge.run_alone(where, where) == threading.get_ident()
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(bridge.run_alone, where, where).result() != threading.get_ident()
    bridge.stop()
    assert bridge.run_alone(where, where) == threading.get_ident()
    bridge.stop()


@pytest.mark.usefixtures("ctrl_c")
def test_who_has_company_crosses_also_inside_what_waits_alone() -> None:
    async def inside() -> int:
        # So do finalizers, which run anywhere.
        return bridge.run_alone(where, where)

    bridge = Bridge()
    assert bridge.run_alone(inside, where) == bridge.run(where())
    bridge.rest()
    assert bridge.run_alone(where, where) == bridge.run(where())
    bridge.stop()


@pytest.mark.usefixtures("ctrl_c")
def test_what_waits_alone_fails_like_everything_else() -> None:
    async def fail() -> int:
        raise KeyError("k")

    async def within() -> int:
        return bridge.run_alone(where, where)

    bridge = Bridge()
    with pytest.raises(KeyError):
        bridge.run_alone(fail, where)
    with pytest.raises(InsideLoop):
        asyncio.run(within())
    assert bridge.run_alone(where, where) == threading.get_ident()
    bridge.stop()


def test_a_stopped_bridge_starts_again() -> None:
    bridge = Bridge()
    bridge.run(where())
    bridge.stop()
    assert bridge.run(where())
    bridge.stop()


def test_what_still_runs_is_called_off_and_leaves_nothing_open() -> None:
    ours, theirs = socket.socketpair()

    async def hold() -> None:
        _, writer = await asyncio.open_connection(sock=ours)
        try:
            await asyncio.Event().wait()
        finally:
            writer.close()

    async def begin() -> asyncio.Task[None]:
        holding = asyncio.create_task(hold())
        await asyncio.sleep(0)
        return holding

    bridge = Bridge()
    with theirs:
        holding = bridge.run(begin())
        bridge.stop()
    assert holding.cancelled()
    assert ours.fileno() == -1, "closed"


def test_an_error_crosses_as_it_is() -> None:
    async def fail() -> None:
        raise KeyError("k")

    bridge = Bridge()
    with pytest.raises(KeyError):
        bridge.run(fail())
    with pytest.raises(KeyError):
        asyncio.run(bridge.reach(fail()))
    bridge.stop()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_what_would_end_a_program_ends_no_loop(kind: type[BaseException]) -> None:
    async def end() -> None:
        raise kind

    bridge = Bridge()
    thread = bridge.run(where())
    with pytest.raises(kind):
        bridge.run(end())
    assert bridge.run(where()) == thread
    bridge.stop()


def test_waiting_inside_a_loop_is_refused() -> None:
    async def inside() -> None:
        bridge.run(where())

    bridge = Bridge()
    with pytest.raises(InsideLoop):
        asyncio.run(inside())


def test_who_stops_waiting_stops_the_work() -> None:
    started, stopped = threading.Event(), threading.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def impatient() -> None:
        task = asyncio.create_task(bridge.reach(endless()))
        await asyncio.to_thread(started.wait)
        task.cancel()
        await asyncio.wait([task])

    bridge = Bridge()
    asyncio.run(impatient())
    assert stopped.wait(10)
    bridge.stop()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_plain_call_is_made_over_there_and_its_outcome_awaited() -> None:
    def begin() -> asyncio.Future[int]:
        begun = asyncio.get_running_loop().create_future()
        begun.set_result(threading.get_ident())
        return begun

    def fail() -> asyncio.Future[int]:
        raise ValueError("at once")

    async def asked() -> int:
        with pytest.raises(ValueError, match="at once"):
            await bridge.ask(fail)
        return await bridge.ask(begin)

    bridge = Bridge()
    assert asyncio.run(asked()) == bridge.run(where())
    assert bridge.run(asked()) == bridge.run(where())
    bridge.stop()


def test_who_stops_awaiting_a_plain_call_calls_its_outcome_off() -> None:
    begun: list[asyncio.Future[int]] = []
    is_begun, is_off = threading.Event(), threading.Event()

    def begin() -> asyncio.Future[int]:
        begun.append(asyncio.get_running_loop().create_future())
        begun[0].add_done_callback(lambda _: is_off.set())
        is_begun.set()
        return begun[0]

    async def give_up() -> None:
        asking = asyncio.ensure_future(bridge.ask(begin))
        await asyncio.to_thread(is_begun.wait, 10)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    bridge = Bridge()
    asyncio.run(give_up())
    assert is_off.wait(10)
    assert begun[0].cancelled()
    bridge.stop()


def test_who_waits_while_it_is_closed_is_told_so() -> None:
    bridge, begun = Bridge(), threading.Barrier(2)

    async def never() -> None:
        begun.wait(30)
        await asyncio.Event().wait()

    def waits() -> None:
        bridge.run(never())

    def awaits() -> None:
        asyncio.run(bridge.reach(never()))

    bridge.run(where())
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(waits)]
        begun.wait(30)
        waiting.append(threads.submit(awaits))
        begun.wait(30)
        bridge.stop()
        for one in waiting:
            with pytest.raises(StoreClosed, match="not known"):
                one.result(30)


def test_a_child_process_opens_the_store_anew(tmp_path: Path) -> None:
    """As a web server does that loads the program once and forks its workers."""
    with Detent(f"sqlite:///{tmp_path}/detent.db") as app:

        @app.job
        def note(who: str) -> str:
            return who

        before = note.enqueue("parent")
        child = os.fork()
        if child == 0:  # pragma: no cover - coverage is not told about forks
            code = 1
            try:
                assert before.status().state == "available"
                code = 0 if note.enqueue("child").is_new else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        note.enqueue("parent again")
        assert len(app.drain()) == 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_amid_a_call_leaves_no_lock_behind() -> None:
    bridge = Bridge()
    with bridge._lock:  # noqa: SLF001 - another thread is just starting the loop
        child = os.fork()
        if child == 0:  # pragma: no cover
            code = 1
            try:
                code = 0 if bridge.run(where()) else 2
            finally:
                os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
