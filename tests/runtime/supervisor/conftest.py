"""A supervisor on virtual time, with bodies that do what a test tells them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from detent.runtime.supervisor.journal import Journal
from tests.runtime.supervisor.stage import Stage

_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of our own is made there


@pytest.fixture
def journal() -> Iterator[Journal]:
    """A journal of its own; in memory where there is such a place, for it syncs at every move."""
    place = _MEMORY if _MEMORY.is_dir() else None
    with TemporaryDirectory(dir=place) as directory:
        journal = Journal(Path(directory) / "supervisor")
        yield journal
        journal.close()


@pytest.fixture
def stage(journal: Journal) -> Stage:
    """A tree on virtual time."""
    return Stage(journal)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
