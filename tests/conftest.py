"""What holds in every room: how coroutines are run, how Hypothesis behaves, and what is left open.

Hypothesis has no time limits, and is repeatable in CI.

Our own pytest plugin is loaded here, as a plugin of the project rather than of its environment.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["detent.testing.plugin"]
# Their assertions speak when they fail, like those of the tests that use them. Said here, because
# whoever imports them first would otherwise be too early.
pytest.register_assert_rewrite(
    "tests.contract.world", "tests.contract.twins", "tests.runtime.process.yard"
)

# `make mutate` runs the same test from several runners in one process.
_CALM = (HealthCheck.too_slow, HealthCheck.differing_executors)

settings.register_profile("local", deadline=None, suppress_health_check=_CALM)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_finish() -> None:
    """What is there before the first test stays: nobody need look through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _left_open() -> Iterator[None]:
    """What a file leaves open fails its last test, and not one of another file much later."""
    yield
    gc.collect()


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own; rooms with other loops go first."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as Python has it: a library that another test has used may have put its own there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
