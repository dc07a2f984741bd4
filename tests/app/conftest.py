"""An app on each of the stores that need no server; the engine's own tests have the third."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent import Detent
from detent.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    """The time of the app."""
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> Iterator[Detent]:
    """An app of its own."""
    url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/detent.db"}[request.param]
    with Detent(url, clock=clock) as app:
        yield app


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own, which is not the bridge's."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
