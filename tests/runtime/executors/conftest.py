"""One program, one loop and one warm pool for all tests of this room: starting is what costs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent import Detent
from detent.runtime.executors.processes import Pool, ProcessExecutor
from tests.runtime.executors.desk import Desk, written

PROGRAM = Path(__file__).with_name("program.txt").read_text()
_DEADLINE_S = 60.0
_RUNNER = pytest.StashKey[asyncio.Runner]()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Detent]]:
    """Its reference and its app."""
    reference, app = written(tmp_path_factory.mktemp("program"), PROGRAM)
    with app:
        yield reference, app


@pytest.fixture
def reference(program: tuple[str, Detent]) -> str:
    """The program."""
    return program[0]


@pytest.fixture
def desk(program: tuple[str, Detent]) -> Desk:
    """A desk for its jobs."""
    return Desk(program[1])


@pytest.fixture(scope="session")
def pool(request: pytest.FixtureRequest, program: tuple[str, Detent]) -> Iterator[ProcessExecutor]:
    """Processes that all tests share, as all jobs of a worker do."""
    runner = _runner(request.session)

    async def made() -> ProcessExecutor:
        return ProcessExecutor(program[0], Pool(most=2))

    executor = runner.run(made())
    yield executor
    runner.run(executor.close())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in the loop of this room."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    told = {name: pyfuncitem.funcargs[name] for name in names}
    test = asyncio.wait_for(pyfuncitem.obj(**told), _DEADLINE_S)
    _runner(pyfuncitem.session).run(test)
    return True


def _runner(session: pytest.Session) -> asyncio.Runner:
    if _RUNNER not in session.stash:
        session.stash[_RUNNER] = runner = asyncio.Runner()
        session.config.add_cleanup(runner.close)
    return session.stash[_RUNNER]
