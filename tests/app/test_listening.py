"""Functions that are registered with `app.on` hear of what has happened."""

from __future__ import annotations

import asyncio
import threading

import pytest

from detent import Detent
from detent.errors import BadOption, InsideLoop
from detent.lifecycle.event import Event
from detent.testing import VirtualClock
from tests.waiting import until


def test_functions_and_coroutines_hear_of_the_states_they_name(app: Detent) -> None:
    heard: list[tuple[str, str | None]] = []

    @app.job
    def work() -> None: ...

    @app.on("completed", from_start=True)
    def sync(event: Event) -> None:
        heard.append(("sync", event.target))

    @app.on("claim", "complete", from_start=True)
    async def asynchronous(event: Event) -> None:
        await asyncio.sleep(0)
        heard.append(("async", event.name))

    work.enqueue()
    app.drain()
    assert app.deliver() == 3
    assert sorted(heard) == [("async", "claim"), ("async", "complete"), ("sync", "completed")]
    assert app.deliver() == 0


def test_a_new_one_hears_of_what_comes(app: Detent) -> None:
    heard: list[str] = []

    @app.job
    def work() -> None: ...

    @app.on()
    def listen(event: Event) -> None:
        heard.append(event.name)

    work.enqueue()
    assert app.deliver() == 0
    app.drain()
    assert app.deliver() == 2
    assert heard == ["claim", "complete"]


def test_after_a_new_start_it_goes_on_where_it_was(tmp_path: object) -> None:
    heard: list[str] = []

    def started() -> Detent:
        app = Detent(f"sqlite:///{tmp_path}/detent.db")
        app.job(name="work")(lambda: None)
        app.on("available", name="ear", from_start=True)(lambda event: heard.append(event.record))
        return app

    ids = []
    for _ in range(2):
        with started() as app:
            ids.append(app.jobs["work"].enqueue().id)
            app.deliver()
    assert heard == ids


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [False, True])
async def test_who_would_end_the_program_is_told_again(
    app: Detent, clock: VirtualClock, kind: type[BaseException], is_async: bool
) -> None:
    heard: list[str] = []

    def sync(event: Event) -> None:
        heard.append(event.name)
        if len(heard) == 1:
            raise kind

    async def asynchronous(event: Event) -> None:
        sync(event)

    app.job(name="work")(lambda: None)
    app.on(name="ear", from_start=True)(asynchronous if is_async else sync)
    await app.jobs["work"].aenqueue()
    listening = asyncio.ensure_future(app.alisten())
    await until(lambda: heard)

    def is_told_again() -> bool:
        clock.advance(1)
        return len(heard) > 1

    await until(is_told_again)
    listening.cancel()
    await asyncio.wait([listening])


async def test_listening_goes_on_until_it_is_called_off(app: Detent) -> None:
    @app.job
    def work() -> None: ...

    told = asyncio.Event()

    @app.on("available", from_start=True)
    async def listen(_: Event) -> None:
        told.set()

    listening = asyncio.create_task(app.alisten())
    await work.aenqueue()
    await asyncio.wait_for(told.wait(), 20)
    listening.cancel()
    await asyncio.wait([listening])


def test_what_blocks_holds_up_no_commit(app: Detent) -> None:
    @app.job
    def work() -> None: ...

    go_on, begun = threading.Event(), threading.Event()

    @app.on("available", from_start=True)
    def stuck(_: Event) -> None:
        begun.set()
        assert go_on.wait(20)

    work.enqueue()
    delivering = threading.Thread(target=app.deliver)
    delivering.start()
    assert begun.wait(20)
    assert work.enqueue().status().state == "available"
    go_on.set()
    delivering.join()


def test_mistakes_are_told_when_it_is_registered(app: Detent) -> None:
    def listen(event: Event) -> None: ...

    with pytest.raises(BadOption, match="complted"):
        app.on("complted")(listen)
    with pytest.raises(BadOption, match="events of"):
        app.on(kind="shift")(listen)
    app.on("completed")(listen)
    with pytest.raises(BadOption, match="Two listeners"):
        app.on("completed")(listen)


async def test_where_a_loop_runs_the_twin_is_named(app: Detent) -> None:
    with pytest.raises(InsideLoop, match="adeliver"):
        app.deliver()
