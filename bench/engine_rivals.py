"""PgQueuer and Huey, each doing what the engine does, in an environment of the bench's own.

They are no dependencies of ours: `--rivals` makes `.build/rivals` and installs them there, once.
The same file is the program that runs in there: `python engine_rivals.py NAME ADDRESS`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1] / ".build" / "rivals"
PACKAGES = ("pgqueuer", "asyncpg", "uvloop", "huey")
SINGLE, JOBS = 1_500, 10_000


def measured(database: str, place: Callable[[], str]) -> dict[str, float]:
    """What the rival of this database does per second."""
    python = HOME / "bin" / "python"
    if not python.exists():
        venv.create(HOME, with_pip=True)
        subprocess.run([python, "-m", "pip", "-q", "install", *PACKAGES], check=True)  # noqa: S603
    name = {"sqlite": "huey", "postgresql": "pgqueuer"}[database]
    command = [str(python), __file__, name, place()]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def huey(url: str) -> dict[str, float]:
    """Huey on SQLite with fsync, two threads, its shortest pause."""
    from huey import SqliteHuey  # type: ignore[import-not-found]  # noqa: PLC0415 - only in there

    queue = SqliteHuey(filename=url.removeprefix("sqlite://"), fsync=True, results=False)
    ran, over = [], threading.Event()

    @queue.task()  # type: ignore[untyped-decorator]
    def work() -> None:
        ran.append(1)
        if len(ran) == JOBS:
            over.set()

    begun = time.perf_counter()
    for _ in range(SINGLE):
        work()
    single = SINGLE / (time.perf_counter() - begun)
    for _ in range(JOBS - SINGLE):
        work()
    consumer = queue.create_consumer(workers=2, initial_delay=0.01, max_delay=0.01, periodic=False)
    begun = time.perf_counter()
    consumer.start()
    over.wait()
    drained = JOBS / (time.perf_counter() - begun)
    consumer.stop()
    return {"huey: enqueue, one at a time": single, "huey: drain of 10,000": drained}


async def pgqueuer(url: str) -> dict[str, float]:
    """PgQueuer in batches of a hundred, which is where it is fastest."""
    import asyncpg  # noqa: PLC0415 - that of the other environment
    from pgqueuer import AsyncpgDriver, PgQueuer  # type: ignore[import-not-found]  # noqa: PLC0415

    connection = await asyncpg.connect(url)
    manager = PgQueuer(AsyncpgDriver(connection))
    queries: Any = manager.qm.queries
    await queries.install()
    ran, over = [], asyncio.Event()

    @manager.entrypoint("work")  # type: ignore[untyped-decorator]
    async def work(_: Any) -> None:
        ran.append(1)
        if len(ran) == JOBS:
            over.set()

    begun = time.perf_counter()
    for _ in range(SINGLE):
        await queries.enqueue("work", b"")
    single = SINGLE / (time.perf_counter() - begun)
    rest = JOBS - SINGLE
    begun = time.perf_counter()
    await queries.enqueue(["work"] * rest, [b""] * rest, [0] * rest)
    bulk = rest / (time.perf_counter() - begun)
    begun = time.perf_counter()
    running = asyncio.create_task(manager.run(batch_size=100))
    await over.wait()
    drained = JOBS / (time.perf_counter() - begun)
    running.cancel()
    names = ("enqueue, one at a time", "enqueue, one call", "drain of 10,000")
    return dict(zip((f"pgqueuer: {one}" for one in names), (single, bulk, drained), strict=True))


if __name__ == "__main__":
    asked, address = sys.argv[1:]
    print(json.dumps(huey(address) if asked == "huey" else asyncio.run(pgqueuer(address))))
