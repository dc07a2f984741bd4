"""A world on each of the stores, for every room of tests that asks for one; audited when done.

A room has these by importing them into its `conftest`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.backends import BACKENDS, Backend
from tests.contract.making import Clock
from tests.contract.world import Session, World

__all__ = ["backend", "pytest_pyfunc_call", "session", "world"]


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    """One of the stores."""
    return BACKENDS[request.param]


@pytest.fixture
def session(backend: Backend, tmp_path: Path) -> Iterator[Session]:
    """An event loop with an open store in it."""
    clock = Clock()
    session = Session(backend(tmp_path, clock), clock)
    try:
        yield session
        session.runner.run(session.world.audit())
    finally:
        session.close()


@pytest.fixture
def world(session: Session) -> World:
    """An open store and its clock."""
    return session.world


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in the loop of its world."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    session = pyfuncitem.funcargs["session"]
    assert isinstance(session, Session)
    names = inspect.signature(pyfuncitem.obj).parameters
    session.runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
