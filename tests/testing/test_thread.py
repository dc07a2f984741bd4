"""A rig and the thread of its test: handlers run in it, and everything works in its loop too."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from contextlib import closing

import pytest

from detent import Call, Context, Detent
from detent.testing import Rig
from tests.waiting import eventually

app = Detent("nosuch:")


@app.job
def plain() -> int:
    return threading.get_ident()


@app.job
async def awaited() -> int:
    return threading.get_ident()


@app.job
def outer() -> None:
    plain.enqueue()  # it waits, and so does what it enqueues: no loop may run meanwhile


@app.job
def stopped(ctx: Context) -> None:
    app.handle(ctx.job_id).cancel("that is enough")
    eventually(lambda: ctx.cancelled)
    ctx.check_cancelled()


@app.job
def interrupted() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@app.job
async def interrupted_later() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.get_running_loop().create_future()


@app.job
def exiting() -> None:
    raise SystemExit(3)


def test_handlers_run_in_the_thread_of_the_test() -> None:
    with Rig(app) as rig:
        assert rig.run(plain.bind()) == threading.get_ident()
        assert rig.run(awaited.bind()) == threading.get_ident()
        outer.enqueue()
        assert len(rig.drain()) == 2


def test_what_belongs_to_the_thread_of_a_test_can_be_used_by_its_jobs() -> None:
    shop = Detent("memory:")
    with closing(sqlite3.connect(":memory:")) as connection, Rig(shop) as rig:
        connection.execute("CREATE TABLE orders (number INT)")

        @shop.job
        def book(number: int) -> None:
            connection.execute("INSERT INTO orders VALUES (?)", (number,))

        rig.run(book.bind(7))
        assert connection.execute("SELECT number FROM orders").fetchall() == [(7,)]


def test_a_job_is_still_told_to_stop() -> None:
    with Rig(app) as rig:
        handle = stopped.enqueue()
        rig.drain()
        assert handle.status().state == "cancelled"


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("call", [interrupted.bind(), interrupted_later.bind()])
def test_ctrl_c_ends_the_drain_and_is_no_failure_of_the_job(call: Call[None]) -> None:
    with Rig(app) as rig:
        [handle] = app.enqueue_many([call])
        with pytest.raises(KeyboardInterrupt):
            rig.drain()
        assert handle.status().state == "active"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert rig.run(plain.bind()) == threading.get_ident()


def test_a_job_that_wants_to_end_the_program_has_failed() -> None:
    with Rig(app) as rig:
        handle = exiting.enqueue()
        rig.drain()
        assert handle.status().failures == 1


def test_a_rig_serves_an_asynchronous_test_as_well() -> None:
    async def test() -> None:
        with Rig(app) as rig:
            assert await rig.arun(awaited.bind()) == threading.get_ident()
            await plain.aenqueue()
            rig.assert_enqueued(plain.bind(), count=1)
            assert len(rig.enqueued()) == 2

    real = app.connection
    asyncio.run(test())
    assert app.connection is real
