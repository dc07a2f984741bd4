"""Running commands in this process, on a real file: many of them, quickly.

What only a process of its own can show (pipes, terminals, signals) is in the tests beside this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from typer.testing import CliRunner

from detent import stores
from detent.cli.application import application_of
from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.enqueueing import Enqueued
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import Claimed, Want, WorkerRow
from tests.cli.commands import Done

R = TypeVar("R")
ADA = By(Actor.USER, "ada")
WORKER = By(Actor.WORKER, "w1")
_SILENT: dict[str, str | None] = {
    **dict.fromkeys(("DETENT_STORE", "DETENT_URL", "DATABASE_URL", "FORCE_COLOR")),
    "NO_COLOR": "1",
    "COLUMNS": "100",
}


class Desk:
    """A store in a file, and a command line on it."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite://{path}"
        self._names = iter(range(1_000_000))
        self._runner = CliRunner(env=_SILENT)
        self._application = application_of(pretty=False)
        self.do(_nothing)

    def run(self, *args: str, **env: str) -> Done:
        """The end of a command; the store is named by the environment."""
        told = {"DETENT_STORE": self.url, **env}
        done = self._runner.invoke(self._application, args, env=told)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout, " ".join(done.stderr.split()))

    def said(self, *args: str) -> str:
        """What a command says that must end well."""
        done = self.run(*args)
        assert (done.code, done.complained) == (0, "")
        return done.said

    def data(self, *args: str) -> Any:
        """The same as data."""
        done = self.run(*args, "--json")
        assert (done.code, done.complained) == (0, "")
        return done.data

    def do(self, work: Callable[[Engine], Awaitable[R]], ago_us: int = 0) -> R:
        """What comes of some work on an engine, now or as if it were done that long ago."""

        def clock() -> int:
            return time.time_ns() // 1_000 - ago_us

        async def done() -> R:
            async with stores.open(self.url, clock=clock) as store, Engine(store) as engine:
                return await work(engine)

        return asyncio.run(done())

    def push(self, **more: Any) -> str:
        """The id of a new job."""

        async def work(engine: Engine) -> str:
            [made] = await engine.enqueue([Ask(**{"type": "mail.send", **more})], ADA)
            assert isinstance(made, Enqueued)
            return made.job.id

        return self.do(work)

    def claim(self, number: int = 1) -> Claimed:
        """Jobs in the hands of w1, which is trusted for a minute."""
        leases = tuple(f"lease-{next(self._names)}" for _ in range(number))

        async def work(engine: Engine) -> Claimed:
            now = engine.store.now()
            await engine.store.beat([WorkerRow("w1", now + 60_000_000)], now=now)
            want = Want(
                command_id=leases[0], by=WORKER, holder="w1", leases=leases, queues=("default",)
            )
            return await engine.claim(want)

        return self.do(work)


async def _nothing(engine: Engine) -> None:
    """Opening the store makes its tables."""
