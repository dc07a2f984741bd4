"""Signals, hooks and the router, without a signal in sight; real ones are in test_processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from detent.errors import BadRoute, BadSpec
from detent.runtime.supervisor.hooks import Hooks, shielded
from detent.runtime.supervisor.router import Escalator, Handler, NotHandled, Router, once
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


def test_a_handler_may_reset_the_count() -> None:
    """W-97."""
    counter = Taps(Rules(force_after=2, cancel_on_interrupt=False))
    counter.tap(INT, 0)
    counter.reset()
    assert counter.tap(INT, 1) is Act.IGNORE


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


async def test_shielded_work_is_finished() -> None:
    """W-104: the caller is cancelled, the work is not, and the caller waits for it."""
    release, done = asyncio.Event(), []

    async def work() -> str:
        await release.wait()
        done.append(True)
        return "result"

    caller = asyncio.ensure_future(shielded(work()))
    await asyncio.sleep(0)
    caller.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not caller.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == [True]
    release.set()
    assert await shielded(work()) == "result"


async def test_shielded_work_that_fails() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await shielded(work())


def recorder(heard: list[str], name: str) -> Handler:
    async def handle(topic: str) -> None:
        heard.append(f"{name}:{topic}")

    return handle


async def test_exact_routes_first_then_patterns_in_order() -> None:
    """W-106, behaviour 20; W-112 for how long each took."""
    heard: list[str] = []
    numbers = Numbers()
    router = Router(numbers)
    for topic in ("lifecycle/*", "lifecycle/sus*", "lifecycle/suspend"):
        router.handle(topic, recorder(heard, topic))
    assert await router.dispatch("lifecycle/suspend")
    assert await router.dispatch("lifecycle/sustain")
    assert not await router.dispatch("other")
    assert heard == ["lifecycle/suspend:lifecycle/suspend", "lifecycle/*:lifecycle/sustain"]
    router.handle("lifecycle/suspend", recorder(heard, "new"))
    await router.dispatch("lifecycle/suspend")
    assert heard[-1] == "new:lifecycle/suspend"
    assert router.unmatched == 1
    assert len(numbers.values["lifecycle_handler_duration_seconds"]) == len(heard)


@pytest.mark.parametrize(("topic", "handler"), [("", nothing), ("x", None)])
def test_a_route_needs_both(topic: str, handler: Handler) -> None:
    """W-106."""
    with pytest.raises(BadRoute):
        Router().handle(topic, handler)


async def test_the_first_middleware_is_the_outermost() -> None:
    """W-107, behaviour 20; a handler that fails does not stop the router."""
    heard: list[str] = []
    router = Router()

    def around(name: str) -> None:
        def wrap(inner: Handler) -> Handler:
            async def call(topic: str) -> None:
                heard.append(name)
                await inner(topic)

            return call

        router.use(wrap)

    async def broken(_: str) -> None:
        heard.append("broken")
        raise ValueError

    around("outer")
    around("inner")
    router.handle("x", broken)
    assert await router.dispatch("x")
    assert heard == ["outer", "inner", "broken"]
    assert router.failed == 1


async def test_sources_flow_through_a_running_router() -> None:
    """W-105, W-111."""
    heard: list[str] = []
    router = Router()
    router.handle("*", recorder(heard, "all"))

    async def source() -> AsyncIterator[str]:
        yield "a"
        yield "b"

    router.listen(source())
    running = asyncio.ensure_future(router.run())
    await router.send("c")
    for _ in range(20):
        await asyncio.sleep(0)
    shown = router.routes()
    assert shown.is_running
    assert (shown.sources, shown.middleware) == (1, 0)
    assert shown.routes[0].topic == "*"
    assert "handle" in shown.routes[0].handler
    assert sorted(heard) == ["all:a", "all:b", "all:c"]
    running.cancel()
    await asyncio.wait({running})
    assert not router.routes().is_running


async def test_nothing_that_is_handed_in_ends_the_router(caplog: pytest.LogCaptureFixture) -> None:
    """W-107: neither a source, a middleware, nor a handler that waits for what was called off."""
    heard: list[str] = []
    router = Router()
    router.handle("*", recorder(heard, "all"))

    async def called_off(_: str) -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    def broken(handler: Handler) -> Handler:
        if len(heard) == 2:
            raise ValueError
        return handler

    async def source(*topics: str) -> AsyncIterator[str]:
        for topic in topics:
            yield topic
        raise OSError

    router.handle("called off", called_off)
    router.use(broken)
    router.listen(source("a"))
    running = asyncio.ensure_future(router.run())
    await until(lambda: "heard no more" in caplog.text)
    router.listen(source("b", "c"))
    await until(lambda: router.failed == 1)
    await router.send("called off")
    await until(lambda: router.failed == 2)
    assert heard == ["all:a", "all:b"]
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_escalation() -> None:
    """W-109: suspend first; when that was not for it, quit, until reset."""
    heard: list[str] = []
    suspended = False

    async def suspend(_: str) -> None:
        nonlocal suspended
        if suspended:
            raise NotHandled
        suspended = True
        heard.append("suspend")

    escalator = Escalator(suspend, recorder(heard, "quit"))
    for _ in range(3):
        await escalator("x")
    assert heard == ["suspend", "quit:x", "quit:x"]
    suspended = False
    await escalator("x")
    assert heard[-1] == "quit:x"
    escalator.reset()
    await escalator("x")
    assert heard[-1] == "suspend"


async def test_once() -> None:
    """W-110."""
    heard: list[str] = []
    handler = once(recorder(heard, "one"))
    await handler("a")
    await handler("b")
    assert heard == ["one:a"]
