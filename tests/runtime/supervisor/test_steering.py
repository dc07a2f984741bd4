"""Topics from outside: real signals, real requests, and what is typed at a real terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import httpx
import pytest
import uvicorn

from detent.errors import BadOption, BadRoute, SourceClosed
from detent.host import ECHO_S
from detent.runtime.supervisor.hearing import signalled
from detent.runtime.supervisor.hooks import shielded
from detent.runtime.supervisor.interactive import Keys, interactive
from detent.runtime.supervisor.router import Router
from detent.runtime.supervisor.signals import Rules, Signals
from detent.runtime.supervisor.sources import clear_line
from detent.runtime.supervisor.topics import BUFFER, Topics
from detent.runtime.supervisor.webhook import BODY_BYTES_MAX, Webhook
from tests.runtime.supervisor.stage import Numbers, Stage, VirtualClock
from tests.waiting import until


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@asynccontextmanager
async def routing(router: Router) -> AsyncIterator[None]:
    """While it is entered, the router runs."""
    running = asyncio.ensure_future(router.run())
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_topics_go_from_one_program_to_another() -> None:
    """W-105, W-110: a plain queue as a source, and the same as a bridge out of a router."""
    source, bridge, numbers = Topics(), Topics(), Numbers()
    router = Router(numbers)
    router.listen(source)
    router.handle("job/*", bridge.put)
    async with routing(router):
        for number in range(30):
            await source.put(f"job/{number}")
            assert await anext(bridge) == f"job/{number}"
        await source.put("other")
        await until(lambda: router.unmatched == 1)
    assert numbers.counts["lifecycle_events_emitted_total"] == 31
    assert numbers.counts["lifecycle_events_routed_total"] == 30
    assert numbers.values["lifecycle_events_waiting"] == [0] * 31


async def test_a_queue_of_topics_is_short_and_ends() -> None:
    """W-105: who puts in the eleventh waits; at the end what is there is still handed out."""
    topics = Topics()
    assert [topics.offer(str(number)) for number in range(BUFFER + 1)] == [True] * 10 + [False]
    waiting = asyncio.ensure_future(topics.put("10"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await anext(topics) == "0"
    await waiting
    refused = asyncio.ensure_future(topics.put("11"))
    await asyncio.sleep(0)
    topics.close()
    with pytest.raises(SourceClosed):
        await refused
    assert not topics.offer("12")
    assert [topic async for topic in topics] == [str(number) for number in range(1, 11)]


async def test_a_router_that_cannot_keep_up_says_so() -> None:
    """W-112: topics wait, and those who bring more wait for room."""
    numbers = Numbers()
    router = Router(numbers)
    for number in range(100):
        await router.send(str(number))
    late = asyncio.ensure_future(router.send("late"))
    await asyncio.sleep(0)
    assert numbers.values["lifecycle_events_waiting"][-1] == 100
    assert numbers.counts["lifecycle_events_blocked_total"] == 1
    async with routing(router):
        await late


async def test_signals_are_topics_beside_those_who_hear_them_too() -> None:
    """W-105, W-108: and when all have left, a signal means what it meant before."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)]
    heard: list[str] = []
    router = Router()

    async def hear(topic: str) -> None:
        heard.append(topic)

    async def nothing() -> None:
        """Nobody to kill, and nothing to read."""

    router.handle("Signal(*", hear)
    router.listen(signalled(signal.SIGINT, signal.SIGHUP))
    with Signals(Rules(3, cancel_on_interrupt=False), force=nothing) as signals:
        async with routing(router):
            await until(lambda: signal.getsignal(signal.SIGHUP) is not before[1])
            for number, word in ((signal.SIGHUP, "hangup"), (signal.SIGINT, "interrupt")):
                send(number)
                await until(partial(heard.__contains__, f"Signal({word})"))
        assert signal.getsignal(signal.SIGHUP) is before[1]
        send(signal.SIGTERM)
        await asyncio.wait_for(signals.cancelled.wait(), 10)
    assert heard == ["Signal(hangup)", "Signal(interrupt)"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)] == before
    with pytest.raises(BadRoute, match="SIGWINCH"):
        await anext(signalled(signal.SIGWINCH))


async def test_a_signal_that_is_told_twice_is_one_topic() -> None:
    """W-105: a terminal tells it, and so does a parent that has heard it too."""
    clock, bridge, router = VirtualClock(), Topics(), Router()
    before = signal.getsignal(signal.SIGUSR2)
    router.handle("*", bridge.put)
    router.listen(signalled(signal.SIGUSR1, signal.SIGUSR2, clock=clock))
    async with routing(router):
        await until(lambda: signal.getsignal(signal.SIGUSR2) is not before)
        send(signal.SIGUSR1)
        assert await anext(bridge) == "Signal(user1)"
        send(signal.SIGUSR1)
        send(signal.SIGUSR2)
        assert await anext(bridge) == "Signal(user2)"
        clock.stand_still(1)
        send(signal.SIGUSR2)
        assert await anext(bridge) == "Signal(user2)"


async def test_a_source_that_is_left_while_its_topic_waits_is_closed() -> None:
    """W-105: or the process would go on catching a signal that nobody hears."""
    before, router = signal.getsignal(signal.SIGUSR1), Router()
    stuck = asyncio.Event()

    async def stand(_: str) -> None:
        stuck.set()
        await asyncio.Event().wait()

    router.handle("stuck", stand)
    for _ in range(100):
        await router.send("stuck")
    router.listen(signalled(signal.SIGUSR1))
    async with routing(router):
        await until(stuck.is_set)
        await router.send("stuck")
        await until(lambda: signal.getsignal(signal.SIGUSR1) is not before)
        send(signal.SIGUSR1)
        for _ in range(20):
            await asyncio.sleep(0)
    assert signal.getsignal(signal.SIGUSR1) is before


@asynccontextmanager
async def served(webhook: Webhook) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that runs nothing else."""
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(webhook, lifespan="off", log_config=None))
    serving = asyncio.ensure_future(server.serve([place]))
    await until(lambda: server.started)
    url = f"http://127.0.0.1:{place.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url) as client:
        yield client
    server.should_exit = True
    await serving


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_post_is_a_topic() -> None:
    """W-108, W-110: accepted, held up while nobody takes it, refused when all is ending."""
    webhook = Webhook()
    async with served(webhook) as client:
        for number in range(BUFFER):
            assert (await client.post(f"/deploy/{number}")).status_code == 202
        held = asyncio.ensure_future(client.post("/deploy/one more", content=b"x" * BODY_BYTES_MAX))
        late = asyncio.ensure_future(client.post("/deploy/late"))
        assert code_of(await client.get("/deploy")) == (405, "method_not_allowed")
        assert not held.done()
        assert await anext(webhook.topics) == "webhook/deploy/0"
        await asyncio.wait({held, late}, return_when=asyncio.FIRST_COMPLETED)
        webhook.topics.close()
        answers = [await held, await late]
        assert sorted(answer.status_code for answer in answers) == [202, 503]
        assert code_of(await client.post("/x")) == (503, "source_closed")


async def test_what_is_no_topic_is_refused_with_a_code() -> None:
    """W-110: more than a megabyte, also if it does not say so, and no line of text."""

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b"x" * (BODY_BYTES_MAX // 16)

    webhook = Webhook()
    async with served(webhook) as client:
        large = b"x" * (BODY_BYTES_MAX + 1)
        for body in (large, parts()):
            assert code_of(await client.post("/x", content=body)) == (413, "payload_too_large")
        for path in ("/", "/a%0Ab", "/" + "x" * 1_001):
            assert code_of(await client.post(path)) == (400, "bad_route")
    webhook.topics.close()
    assert [topic async for topic in webhook.topics] == []


async def test_only_who_has_the_token_may_steer() -> None:
    """W-105: topics end processes."""
    webhook = Webhook("gehe\u00efm")
    async with served(webhook) as client:
        for given in ("", "Bearer no", "gehe\u00efm", "Bearer"):
            wrong = {b"authorization": given.encode()}
            assert code_of(await client.post("/x", headers=wrong)) == (401, "unauthorized")
        right = {b"authorization": "Bearer gehe\u00efm".encode()}
        assert (await client.post("/x", headers=right)).status_code == 202
    with pytest.raises(BadOption):
        Webhook("")


async def test_a_terminal_steers_a_supervisor(stage: Stage) -> None:
    """W-109: Ctrl-C suspends, after a resume again, and when all is suspended it quits."""
    window, terminal = os.openpty()
    supervisor = await stage.running(stage.spec("a"))
    router = Router()
    interactive(router, supervisor, descriptor=terminal)
    before = signal.getsignal(signal.SIGINT)

    def is_now(status: str) -> bool:
        return supervisor.snapshot().children[0].status == status

    async def press() -> None:
        """Later than what would be taken for an echo."""
        over = time.monotonic() + ECHO_S
        await until(lambda: time.monotonic() > over)
        send(signal.SIGINT)

    async with routing(router):
        await until(lambda: signal.getsignal(signal.SIGINT) is not before)
        for _ in range(2):
            await press()
            await until(lambda: is_now("Suspended"))
            os.write(window, b"resume\n")
            await until(lambda: is_now("Running"))
        os.write(window, b"suspend\n")
        await until(lambda: is_now("Suspended"))
        await press()
        await stage.clock.until(lambda: is_now("Stopped"))
    os.close(window)
    os.close(terminal)


async def test_a_resume_takes_back_that_it_was_to_end(stage: Stage) -> None:
    """W-109: also what a program does itself counts, and it may end in its own way."""
    left: list[str] = []

    async def leave(topic: str) -> None:
        left.append(topic)

    supervisor = await stage.running(stage.spec("a"))
    keys = Keys(supervisor, leave)
    await supervisor.suspend_all()
    for _ in range(2):
        await keys.interrupt("Signal(interrupt)")
    assert left == ["Signal(interrupt)"] * 2
    await keys.resume("command/resume")
    assert supervisor.snapshot().children[0].status == "Running"
    await keys.interrupt("Signal(interrupt)")
    assert supervisor.snapshot().children[0].status == "Suspended"
    assert len(left) == 2


@pytest.mark.parametrize("word", ["q", "quit"])
async def test_a_line_quits(stage: Stage, word: str) -> None:
    """W-109; the window may close before the router ends."""
    window, terminal = os.openpty()
    supervisor = await stage.running(stage.spec("a"))
    router = Router()
    interactive(router, supervisor, descriptor=terminal)
    async with routing(router):
        os.write(window, f"{word}\n".encode())
        await until(lambda: not supervisor.is_open)
        os.close(window)
        await stage.during(supervisor.wait())
    os.close(terminal)


async def test_the_line_of_a_terminal_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """W-108: files and pipes get no control characters."""
    window, terminal = os.openpty()
    with open(terminal, "w") as shown, open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230
        monkeypatch.setattr(sys, "stdout", nowhere)
        monkeypatch.setattr(sys, "stderr", shown)
        await clear_line("lifecycle/clear-line")
        assert os.read(window, 100) == b"\r\x1b[K"
        monkeypatch.setattr(sys, "stderr", nowhere)
        await clear_line("lifecycle/clear-line")
    os.close(window)


async def test_shielded_sections_are_counted() -> None:
    """W-104, W-112."""
    numbers, release = Numbers(), asyncio.Event()
    caller = asyncio.ensure_future(shielded(release.wait(), numbers))
    await until(lambda: numbers.counts["lifecycle_critical_section_entered_total"])
    caller.cancel()
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert numbers.counts["lifecycle_critical_section_cancelled_total"] == 1
    assert len(numbers.values["lifecycle_critical_section_duration_seconds"]) == 1
