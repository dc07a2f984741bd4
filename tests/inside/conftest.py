"""Every test that asks for a `yard` gets one per driver: a store, and callers beside it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.inside.yard")

from tests.inside.callers import CALLERS  # noqa: E402
from tests.inside.yard import Yard  # noqa: E402

POSTGRES = [name for name, (database, _) in CALLERS.items() if database == "postgresql"]
SQLITE = [name for name, (database, _) in CALLERS.items() if database == "sqlite"]


@pytest.fixture(params=list(CALLERS))
def way(request: pytest.FixtureRequest) -> str:
    """The name of a driver."""
    return str(request.param)


@pytest.fixture
def yard(way: str, tmp_path: Path) -> Iterator[Yard]:
    """A store that is verified when the test is done."""
    yard = Yard(way, tmp_path)
    try:
        yield yard
        yard.session.runner.run(yard.verify())
    finally:
        yard.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in the loop of its store."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    yard = pyfuncitem.funcargs["yard"]
    assert isinstance(yard, Yard)
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    yard.session.runner.run(yard.run(test))
    return True
