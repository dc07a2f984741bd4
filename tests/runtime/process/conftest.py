"""Tests that are coroutines run in a loop of their own; nothing they started may outlive them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.runtime.process.yard")

from detent.runtime.process.keeper import Keeper  # noqa: E402


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    """A keeper for the tests of a file; its end kills whatever a failing one has left behind."""
    keeper = Keeper()
    yield keeper
    keeper.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
