"""A store in a file of its own, and a command line on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inside import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """An empty store and its command line."""
    return Desk(tmp_path / "detent.db")
