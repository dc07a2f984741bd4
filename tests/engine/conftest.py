"""An engine on each of the stores, with a clock that stands still until it is moved."""

from __future__ import annotations

import pytest

from detent.engine.engine import Engine
from tests.contract.world import Session
from tests.contract.worlds import backend, pytest_pyfunc_call, session, world

__all__ = ["backend", "engine", "pytest_pyfunc_call", "session", "world"]


@pytest.fixture
def engine(session: Session) -> Engine:
    """An engine on that store; its retries come without a spread."""
    return Engine(session.world.store, jitter=lambda: 0.5)
