"""Tests that are coroutines run in a loop of their own; nothing they started may outlive them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detent.runtime.process.keeper import Keeper


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    """A keeper for the tests of a file; its end kills whatever a failing one has left behind."""
    keeper = Keeper()
    yield keeper
    keeper.close()
