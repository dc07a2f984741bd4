"""A program that closes nothing just ends: its jobs are stored, and nothing is said about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from detent import Detent
from tests.postgres.server import databases

PROGRAM = """
import asyncio, atexit, logging, os, sys, threading
from detent import Detent

# The server of the tests forgets everything without power, and whoever works there is told so.
logging.getLogger("detent.engine.doctor").setLevel(logging.ERROR)
app = Detent(sys.argv[1])

@app.job(name="add")
async def add(a: int, b: int) -> int:
    return a + b

has_begun = threading.Event()

def enqueueing() -> None:
    while True:
        app.enqueue_many([add.bind(1, 2)] * 50)
        has_begun.set()

async def awaited() -> None:
    handle = await add.aenqueue(1, 2)
    async with app.working():
        assert await handle.aresult(timeout=30) == 3
    print(handle.id)

if sys.argv[2] == "awaits":
    asyncio.run(awaited())
elif sys.argv[2] == "awaits many":

    async def many() -> None:
        async with app:
            for number in range(60):
                await add.aenqueue(number, number)
        for number in range(60):
            print((await add.aenqueue(number, number)).id)

    asyncio.run(many())
    asyncio.run(many())
    app.close()
elif sys.argv[2] == "forks":
    add.enqueue(0, 0)
    children = [child for child in (os.fork() for _ in range(2)) if child]
    for _ in range(20):
        add.enqueue(1, 2)
    if len(children) == 2:
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
elif sys.argv[2] == "ends late":
    handle = add.enqueue(1, 2)

    def late() -> None:
        threading.main_thread().join(30)
        assert handle.status().state == "available"
        print(add.enqueue(1, 2).id)

    atexit.register(app.close)
    atexit.register(lambda: add.enqueue(handle.status().attempt, 2))
    threading.Thread(target=late).start()
else:
    handle = add.enqueue(1, 2)
    if sys.argv[2] == "leaves threads":
        for work in (handle.result, lambda: asyncio.run(handle.aresult()), enqueueing):
            threading.Thread(target=work, daemon=True).start()
        assert has_begun.wait(30)
    print(handle.id)
"""


@pytest.mark.parametrize("how", ["waits", "awaits", "leaves threads", "ends late"])
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_it_ends_without_a_word(store: str, how: str, tmp_path: Path) -> None:
    if how == "ends late" and (3, 12) <= sys.version_info < (3, 12, 2):
        pytest.skip("this Python starts no thread once the main one is over")
    url = f"sqlite:///{tmp_path}/d.db" if store == "sqlite" else databases().of(tmp_path)
    told = [sys.executable, "-c", PROGRAM, url, how]
    ended = [subprocess.run(told, capture_output=True, timeout=60, check=True) for _ in range(3)]  # noqa: S603
    assert [one.stderr for one in ended] == [b""] * 3
    with Detent(url) as app:
        states = {app.handle(one.stdout.decode().strip()).status().state for one in ended}
    assert states == {"completed" if how == "awaits" else "available"}


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_children_of_a_program_that_has_enqueued_end_without_a_word(
    store: str, tmp_path: Path
) -> None:
    """As the workers of a web server do: what waits in the loop of the parent is not theirs."""
    url = f"sqlite:///{tmp_path}/d.db" if store == "sqlite" else databases().of(tmp_path)
    told = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, url, "forks"]
    ended = subprocess.run(told, capture_output=True, timeout=60, check=True)  # noqa: S603
    assert ended.stderr == b""
    with Detent(url) as app:
        # The first child forks one more, so there are four of them.
        assert app.select(state="available").count() == 1 + 4 * 20


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_loops_that_end_leave_nothing_open(store: str, tmp_path: Path) -> None:
    """Whoever enqueues from one loop after the other, and closes the app in between."""
    url = f"sqlite:///{tmp_path}/d.db" if store == "sqlite" else databases().of(tmp_path)
    told = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM, url, "awaits many"]
    ended = subprocess.run(told, capture_output=True, timeout=60, check=True)  # noqa: S603
    # In this mode loops tell of what takes long, which they may.
    assert [line for line in ended.stderr.splitlines() if not line.startswith(b"Executing")] == []
    assert len(ended.stdout.splitlines()) == 120
    with Detent(url) as app:
        assert app.select(state="available").count() == 240
