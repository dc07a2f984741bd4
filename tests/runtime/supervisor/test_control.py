"""Signals and shutdown hooks; tests with real processes are in test_processes."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from detent.errors import BadSpec
from detent.runtime.supervisor.hooks import Hooks
from detent.runtime.supervisor.signals import Act, Reason, Rules, Signals, Taps
from tests.runtime.supervisor.stage import Numbers, VirtualClock
from tests.waiting import until

INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize(
    ("rules", "taps", "acts"),
    [
        (Rules(), [(INT, 0), (INT, 1)], "cancel force"),
        (Rules(), [(TERM, 0), (INT, 1)], "cancel force"),
        (Rules(), [(TERM, 0), (TERM, 600)], "cancel force"),
        # The terminal and a parent have told it both; a person takes longer.
        (Rules(), [(INT, 0), (INT, 0.02), (INT, 0.2)], "cancel ignore force"),
        (Rules(), [(TERM, 0), (TERM, 0.09), (TERM, 0.11)], "cancel ignore force"),
        # A parent may turn the one into the other, and take its time; nobody does the reverse,
        # but two that come together may be heard in either order.
        (Rules(), [(INT, 0), (TERM, 0.02), (TERM, 0.3), (INT, 0.4)], "cancel ignore ignore force"),
        (Rules(), [(INT, 0), (TERM, 0.6)], "cancel force"),
        (Rules(), [(TERM, 0), (INT, 0.02), (INT, 0.2)], "cancel ignore force"),
        (Rules(force_after=2), [(TERM, 0), (INT, 9), (INT, 60)], "cancel ignore force"),
        (Rules(force_after=0), [(INT, 0), (INT, 1), (INT, 2)], "cancel ignore ignore"),
        (
            Rules(force_after=3, cancel_on_interrupt=False),
            [(INT, 0), (INT, 1), (INT, 2)],
            "ignore ignore force",
        ),
        (Rules(force_after=2, cancel_on_interrupt=False), [(INT, 0), (INT, 6)], "ignore ignore"),
        (Rules(force_after=3, cancel_on_interrupt=False), [(TERM, 0)], "cancel"),
        (
            Rules(force_after=3, cancel_on_interrupt=False),
            [(INT, 0), (INT, 0.01), (TERM, 0.02)],
            "ignore ignore cancel",
        ),
    ],
)
def test_what_signals_call_for(rules: Rules, taps: list[tuple[int, float]], acts: str) -> None:
    """W-96, W-97, behaviour 18."""
    counter = Taps(rules)
    assert [counter.tap(number, at) for number, at in taps] == [Act(one) for one in acts.split()]


async def nothing() -> None:
    """Nobody to kill."""


async def test_the_first_reason_sticks() -> None:
    """W-98."""
    signals = Signals(force=nothing)
    assert signals.reason is Reason.NONE
    signals.cancel(Reason.STOP)
    signals.heard(TERM)
    assert signals.reason.value == "Manual:Stop"
    assert signals.cancelled.is_set()


async def test_force_kills_before_it_leaves() -> None:
    """W-100, W-102: also if the killing fails."""
    order: list[str] = []

    async def force() -> None:
        order.append("killed")
        raise OSError("one of them would not")

    left = asyncio.Event()

    def leave(code: int) -> None:
        order.append(f"left {code}")
        left.set()

    numbers = Numbers()
    signals = Signals(force=force, metrics=numbers, leave=leave)
    signals.clock = clock = VirtualClock()
    signals.heard(INT)
    clock.stand_still(1)
    signals.heard(INT)
    await asyncio.wait_for(left.wait(), 10)
    assert order == ["killed", "left 1"]
    assert signals.reason is Reason.INTERRUPT
    assert numbers.counts["lifecycle_force_exit_triggered_total"] == 1
    assert numbers.counts["lifecycle_signals_total"] == 2


async def test_signals_get_their_former_handlers_back() -> None:
    """W-100: also those that were not the system's."""
    heard: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    signal.signal(signal.SIGHUP, lambda number, _: heard.append(number))
    try:
        with Signals(force=nothing, reload=nothing) as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(signals.cancelled.wait(), 10)
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: heard)
    finally:
        signal.signal(signal.SIGHUP, before[2])
    assert heard == [signal.SIGHUP]
    assert [signal.getsignal(number) for number in numbers] == before


async def test_a_reload_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """W-103: a real SIGHUP; the process goes on."""
    heard = asyncio.Event()
    errors: list[Exception] = [BadSpec("no such queue", field="queue"), ValueError("odd")]

    async def reload() -> None:
        heard.set()
        raise errors.pop(0)

    signals = Signals(force=nothing, reload=reload)
    with signals:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
    assert not signals.cancelled.is_set()
    assert [record.getMessage() for record in caplog.records] == [
        "the new settings are not used: no such queue",
        "the new settings are not used",
    ]


async def test_many_reloads_at_once_are_one_more() -> None:
    """W-103: each replaces every worker; and none begins when all is to end."""
    reloads: list[asyncio.Event] = []

    async def reload() -> None:
        reloads.append(asyncio.Event())
        await reloads[-1].wait()

    signals = Signals(force=nothing, reload=reload)
    for _ in range(5):
        signals.heard_reload()
    await until(lambda: reloads)
    for _ in range(5):
        signals.heard_reload()
    reloads[0].set()
    await until(lambda: len(reloads) == 2)
    signals.heard_reload()
    signals.cancel()
    reloads[1].set()
    await until(lambda: len(asyncio.all_tasks()) == 1)
    assert len(reloads) == 2


async def test_who_loses_its_terminal_ends() -> None:
    """W-103: the same signal says that a window was closed."""
    heard = asyncio.Event()

    async def reload() -> None:
        heard.set()

    window, terminal = os.openpty()
    signals = Signals(Rules(streams=(terminal,)), force=nothing, reload=reload)
    signals.heard_reload()
    await asyncio.wait_for(heard.wait(), 10)
    assert not signals.cancelled.is_set()
    os.close(window)
    signals.heard_reload()
    assert (signals.cancelled.is_set(), signals.reason) == (True, Reason.TERMINATE)
    os.close(terminal)


async def test_hooks_run_last_first_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    """W-99, behaviour 18: LIFO, safe from each other, and those added on the way run next."""
    ran: list[str] = []
    numbers = Numbers()
    hooks = Hooks(VirtualClock(), numbers)

    async def last() -> None:
        ran.append("last")
        hooks.add(lambda: ran.append("added"))

    def broken() -> None:
        ran.append("broken")
        raise ValueError

    for hook in (lambda: ran.append("first"), broken, last):
        hooks.add(hook)
    await hooks.run()
    assert ran == ["last", "added", "broken", "first"]
    assert numbers.counts["lifecycle_hooks_executed_total"] == 4
    assert numbers.counts["lifecycle_hooks_panicked_total"] == 1
    assert "broken failed" in caplog.text


async def test_a_slow_hook_is_awaited(caplog: pytest.LogCaptureFixture) -> None:
    """W-99: a warning, no more."""
    clock = VirtualClock()
    hooks, ran = Hooks(clock), []

    async def slow() -> None:
        await clock.sleep(60)
        ran.append("slow")

    hooks.add(slow)
    running = asyncio.ensure_future(hooks.run())
    await clock.until(running.done)
    assert ran == ["slow"]
    assert "takes longer than 5 s" in caplog.text


async def test_a_long_shutdown_shows_where_it_stands(caplog: pytest.LogCaptureFixture) -> None:
    """W-101: the stacks of all tasks, then it waits on; hooks come afterwards."""
    clock = VirtualClock()
    signals = Signals(force=nothing)
    signals.clock = clock
    ran: list[str] = []
    signals.hooks.add(lambda: ran.append("hook"))

    async def stop_all_of_them() -> None:
        await clock.sleep(10)
        ran.append("stopped")

    ending = asyncio.ensure_future(signals.shut_down(stop_all_of_them()))
    await clock.until(ending.done)
    assert ran == ["stopped", "hook"]
    assert "stop_all_of_them" in caplog.text
