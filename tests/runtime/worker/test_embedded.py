"""A worker inside a program: it works while it is entered, and finishes when it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from detent import Context, Detent
from detent.errors import BadOption, InsideLoop
from tests.runtime.worker.place import Place, ended, events
from tests.waiting import until


async def test_jobs_are_run_while_it_is_entered(app: Detent) -> None:
    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    @app.job
    def where() -> str:
        print("from a thread")  # noqa: T201
        return threading.current_thread().name

    async with app.working(slots=5) as working:
        assert await (await add.aenqueue(1, 2)).aresult(timeout=10) == 3
        handle = await where.aenqueue()
        assert (await handle.aresult(timeout=10)).startswith("detent-job")
        assert working.status is not None
        await until(lambda: working.status and working.status.done == 2)
    assert [line.text async for line in handle.alogs()] == ["from a thread"]
    assert working.status.state == "stopped"


async def test_a_retry_comes_because_it_does_the_upkeep_too(here: Place) -> None:
    @here.app.job(retry=1)
    async def second_time(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError
        return ctx.attempt

    async with here.app.working():
        assert await (await second_time.aenqueue()).aresult(timeout=20) == 2


async def test_when_it_is_called_off_jobs_finish_or_go_back(app: Detent) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def finishes() -> str:
        begun.set()
        await go.wait()
        return "done"

    @app.job
    async def goes_on() -> None:
        await asyncio.Event().wait()

    first, second = await finishes.aenqueue(), await goes_on.aenqueue()
    working = asyncio.create_task(app.aworker(grace=0.5, upkeep=False))
    await asyncio.wait_for(begun.wait(), 10)
    working.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert (await first.astatus()).state == "completed"
    assert (await events(second))[-2:] == ["hand_back", "due"]


async def test_an_instance_that_is_lost_is_followed_by_a_new_one(here: Place) -> None:
    @here.app.job
    async def work() -> None:
        pass

    async with here.app.working(upkeep=False):
        first = await work.aenqueue()
        await ended(first)
        lost = (await first.ahistory())[-1].actor_id
        await here.bury(lost)
        second = await work.aenqueue()
        await ended(second)
        assert (await second.ahistory())[-1].actor_id != lost


async def test_it_says_who_it_is_and_when_it_is_gone(here: Place) -> None:
    @here.app.job
    async def work() -> None:
        pass

    async with here.app.working(upkeep=False, queues=("fast", "slow")) as working:
        await until(lambda: working.status)
        [row] = await here.rows()
        assert row.who is not None
        assert row.who.embedded
        assert (row.who.queues, row.who.types) == (("fast", "slow"), ("work",))
        assert row.who.process is None or row.who.process.pid == os.getpid()
    [row] = await here.rows()
    assert row.death is not None
    assert row.death.cause == "natural"


async def test_options_that_cannot_be_are_refused(local: Detent) -> None:
    with pytest.raises(BadOption, match="slots"):
        local.working(slot=3)  # type: ignore[call-arg]
    with pytest.raises(BadOption):
        local.working(slots=0)
    with pytest.raises(InsideLoop):
        local.worker()


def test_a_program_that_works_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with subprocess.Popen(  # noqa: S603
        [sys.executable, str(path), f"sqlite:///{tmp_path}/detent.db"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "src"},
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 0
        assert program.stdout.read() == "completed\n"


PROGRAM = """
import asyncio, sys
from detent import Detent

app = Detent(sys.argv[1])

@app.job
async def work() -> None:
    sys.__stdout__.write("begun\\n")
    sys.__stdout__.flush()
    await asyncio.sleep(0.3)

handle = work.enqueue()
app.worker()
print(handle.status().state)
"""
