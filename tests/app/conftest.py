"""An app on each of the stores that need no server; the engine's own tests have the third."""

from __future__ import annotations

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
