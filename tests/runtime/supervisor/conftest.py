"""A supervisor on virtual time, with bodies that do what a test tells them."""

from __future__ import annotations

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
