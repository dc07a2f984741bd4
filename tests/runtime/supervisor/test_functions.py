"""Function workers: coroutines and threads, on real time, because a thread knows no other."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from detent.errors import StartFailed
from detent.lifecycle.worker import Instance, WorkerState
from detent.runtime.supervisor.core import Plan
from detent.runtime.supervisor.function import FunctionBody, WorkerContext
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.spec import Restart, Spec
from detent.runtime.supervisor.supervisor import Supervisor
from detent.runtime.supervisor.tree import Tree
from tests.runtime.supervisor.test_restarting import live
from tests.waiting import until

_S = WorkerState
LIMIT_S = 10
HOW = ("suspendable", "says_ready", "probe")


def supervisor(
    journal: Journal, function: Callable[[WorkerContext], Any], **more: Any
) -> Supervisor:
    how = {key: more.pop(key) for key in HOW if key in more}
    spec = Spec(
        "f", lambda: FunctionBody(function, **how), kind="function", restart=Restart.NEVER, **more
    )
    return Supervisor(Tree(journal), [spec], Plan())


async def outcome(one: Supervisor) -> Instance:
    """How the only instance ended."""
    await one.start()
    current = one.slots["f"].live
    if current is not None:
        await asyncio.wait_for(asyncio.shield(current.done), LIMIT_S)
    last = one.slots["f"].last
    assert last is not None
    await one.stop()
    return last


async def returns(_: WorkerContext) -> None:
    """Done."""


async def raises(_: WorkerContext) -> None:
    raise ValueError("no")


async def times_out(_: WorkerContext) -> None:
    raise TimeoutError


async def exits(_: WorkerContext) -> None:
    sys.exit(3)


async def is_interrupted(_: WorkerContext) -> None:
    raise KeyboardInterrupt


async def forever(_: WorkerContext) -> None:
    await asyncio.get_running_loop().create_future()


def thread_returns(_: WorkerContext) -> None:
    """Done."""


def thread_raises(_: WorkerContext) -> None:
    raise KeyError("no")


def thread_waits(work: WorkerContext) -> None:
    work.stopping.wait(LIMIT_S)


@pytest.mark.parametrize(
    ("function", "state", "cause"),
    [
        (returns, _S.FINISHED, "natural"),
        (raises, _S.FAILED, "exception"),
        (times_out, _S.FAILED, "exception"),
        (exits, _S.FAILED, "exception"),
        (is_interrupted, _S.STOPPED, "external_signal"),
        (thread_returns, _S.FINISHED, "natural"),
        (thread_raises, _S.FAILED, "exception"),
    ],
)
async def test_how_a_function_ends(
    journal: Journal, function: Callable[[WorkerContext], Any], state: WorkerState, cause: str
) -> None:
    """W-81, behaviour 1."""
    ended = await outcome(supervisor(journal, function, needs_ready_signal=False))
    assert (ended.state, ended.cause) == (state, cause)


@pytest.mark.parametrize("function", [forever, thread_waits])
async def test_a_function_obeys(journal: Journal, function: Callable[[WorkerContext], Any]) -> None:
    """W-31, W-26, W-81, behaviours 1, 3 and 5: running after the start, stopped when asked."""
    one = supervisor(journal, function)
    await one.start()
    current = live(one, "f")
    assert current.record.state == "running"
    assert not current.done.done()
    await asyncio.wait_for(one.stop(), LIMIT_S)
    assert current.state is _S.STOPPED


async def test_what_will_not_stop_is_left_behind(journal: Journal) -> None:
    """W-26: abandoned with its stacks, failed and not killed, and the slot is free."""
    release = threading.Event()

    def deaf(_: WorkerContext) -> None:
        release.wait(LIMIT_S)

    one = supervisor(journal, deaf, stop_grace_s=0.2)
    await one.start()
    current = live(one, "f")
    await asyncio.wait_for(one.stop_slot("f"), LIMIT_S)
    assert (current.state, current.record.code) == (_S.FAILED, "abandoned")
    assert not current.record.killed
    assert "release.wait" in (journal.dump_of(current.id) or "")
    await one.start_slot("f")
    assert live(one, "f").state is _S.RUNNING
    release.set()
    await asyncio.wait_for(one.stop(), LIMIT_S)


async def test_a_coroutine_that_swallows_its_cancel(journal: Journal) -> None:
    """W-26."""
    release = asyncio.Event()

    async def deaf(_: WorkerContext) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    one = supervisor(journal, deaf, stop_grace_s=0.2)
    await one.start()
    current = live(one, "f")
    await asyncio.wait_for(one.stop(), LIMIT_S)
    assert (current.state, current.record.code) == (_S.FAILED, "abandoned")
    assert "release.wait" in (journal.dump_of(current.id) or "")
    release.set()


async def test_fifty_rounds_leave_nothing_behind(journal: Journal) -> None:
    """Behaviour 4."""
    one = supervisor(journal, thread_waits)
    await one.start()
    threads = threading.active_count()
    for _ in range(50):
        await asyncio.wait_for(one.restart("f"), 1)
    assert threading.active_count() <= threads
    await one.stop()
    assert journal.unended() == []
    assert len(asyncio.all_tasks()) == 1


def units(steps: list[int]) -> Callable[[WorkerContext], Awaitable[None]]:
    async def work(work: WorkerContext) -> None:
        while True:
            await work.acheckpoint()
            work.done += 1
            steps.append(work.done)
            await asyncio.sleep(0)

    return work


def thread_units(steps: list[int]) -> Callable[[WorkerContext], None]:
    def work(work: WorkerContext) -> None:
        while not work.stopping.is_set():
            work.checkpoint()
            work.done += 1
            steps.append(work.done)
            work.stopping.wait(0.001)

    return work


@pytest.mark.parametrize("make", [units, thread_units])
async def test_the_gate(journal: Journal, make: Callable[[list[int]], Any]) -> None:
    """W-36, W-37, W-39, W-40, behaviour 16: quiet there, on when opened, home when stopped."""
    steps: list[int] = []
    one = supervisor(journal, make(steps), suspendable=True)
    await one.start()
    await one.suspend("f", LIMIT_S)
    quiet = len(steps)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(steps) == quiet
    await one.resume("f")
    current = live(one, "f")

    for _ in range(100_000):
        if len(steps) > quiet + 3:
            break
        await asyncio.sleep(0)
    assert current.body.usage().done > quiet  # type: ignore[union-attr]
    await one.suspend("f", LIMIT_S)
    await asyncio.wait_for(one.stop(), LIMIT_S)
    assert current.state is _S.STOPPED


async def test_a_function_that_says_when_it_is_ready(journal: Journal) -> None:
    """W-33."""
    said: list[WorkerContext] = []

    def work(work: WorkerContext) -> None:
        said.append(work)
        work.ready()
        work.stopping.wait(LIMIT_S)

    one = supervisor(journal, work, says_ready=True)
    await one.start()
    assert said[0].handover.slot == "f"
    assert live(one, "f").state is _S.RUNNING
    await one.stop()


async def test_a_function_that_never_says_so(journal: Journal) -> None:
    """K6, W-33: init_timeout, and it is left behind."""
    release, threads = threading.Event(), threading.active_count()

    def silent(_: WorkerContext) -> None:
        release.wait(LIMIT_S)

    one = supervisor(journal, silent, says_ready=True, init_timeout_s=0.1)
    with pytest.raises(StartFailed) as caught:
        await one.start()
    assert caught.value.fields["cause"] == "init_timeout"
    # Other tests count threads: it must not go on into one of them.
    release.set()
    await until(lambda: threading.active_count() <= threads)


async def test_a_function_is_as_well_as_its_probe_says(journal: Journal) -> None:
    """W-83."""
    well = [True]
    one = supervisor(journal, forever, probe=lambda: well[0])
    await one.start()
    assert (await one.inspect("f", fresh=True)).health == "healthy"
    well[0] = False
    assert (await one.inspect("f")).health == "healthy"
    assert (await one.inspect("f", fresh=True)).health == "unhealthy"
    assert one.tail("f") == []
    await one.stop()
