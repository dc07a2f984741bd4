"""What the snapshots need from inside Detent. Everything else in this folder uses public names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from typer.testing import CliRunner

from detent import Detent, stores
from detent.cli.application import application_of
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.service import Service
from detent.testing import VirtualClock
from tests.surfaces.server import Running, running

T = TypeVar("T")


class Server:
    """A real HTTP server whose background loops run only when the test says so."""

    def __init__(self, serving: Running, loops: dict[str, Callable[[], Awaitable[None]]]) -> None:
        self.port = serving.port
        self._service = serving.app.service
        self._loops = loops
        self._loop = serving.app.service._loop  # noqa: SLF001

    def run_timers(self) -> None:
        """Apply everything that is due: retries, deadlines, schedules, lost leases."""
        self._do(self._service.engine.upkeep.turn())

    @contextmanager
    def background(self, *names: str) -> Iterator[None]:
        """Run the background loops of these names until the end of the block."""

        async def begin() -> list[asyncio.Future[None]]:
            return [asyncio.ensure_future(self._loops[name]()) for name in names]

        async def end() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        tasks = self._do(begin())
        try:
            yield
        finally:
            self._do(end())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


@contextmanager
def serving(url: str, clock: VirtualClock, program: Detent | None = None) -> Iterator[Server]:
    """A server on this store. Every store that is opened meanwhile goes by the clock."""
    loops: dict[str, Callable[[], Awaitable[None]]] = {}
    open_store = stores.open

    def opened(url: str, **more: Any) -> stores.Store:
        # Another day may go on meanwhile: it has said which clock is its own.
        return open_store(url, **more | {"clock": more.get("clock") or clock})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "open", opened)
        patch.setattr(Service, "keep", lambda _, name, work: loops.setdefault(name, work))
        with running(url, Settings(), program) as found:
            yield Server(found, loops)


class CommandLine:
    """The commands, run in this process on one store."""

    def __init__(self, url: str = "") -> None:
        self.application = application_of(pretty=False)
        env = {"DETENT_STORE": url, "NO_COLOR": "1", "COLUMNS": "100", "FORCE_COLOR": None}
        self._runner = CliRunner(env=env)

    def run(self, *words: str) -> str:
        """What the command prints; it must end well."""
        done = self._runner.invoke(self.application, words, catch_exceptions=False)
        assert done.exit_code == 0, (words, done.output)
        return done.stdout

    def data(self, *words: str) -> Any:
        """The same as JSON."""
        return json.loads(self.run(*words, "--json"))
