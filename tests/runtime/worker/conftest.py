"""An app on each of the stores that many processes share, and workers on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detent import Detent
from detent.app.loading import load
from tests.postgres.server import databases
from tests.runtime.worker.place import Place

PROGRAM = Path(__file__).with_name("program.txt").read_text()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/detent.db"
    return databases().of(tmp_path)


@pytest.fixture
def app(url: str) -> Iterator[Detent]:
    """An app on it."""
    with Detent(url) as app:
        yield app


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Detent]:
    """An app in one file, where it is of no matter which store it is."""
    with Detent(f"sqlite:///{tmp_path}/detent.db") as app:
        yield app


@pytest.fixture
def place(app: Detent) -> Place:
    """Where workers are made."""
    return Place(app)


@pytest.fixture
def here(local: Detent) -> Place:
    """The same for the local app."""
    return Place(local)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[tuple[str, Place]]:
    """A program whose jobs can run in processes: its reference, and where its workers are made."""
    path = tmp_path / f"jobs_{abs(hash(tmp_path))}.py"
    head = "from __future__ import annotations\nfrom detent import *\n"
    path.write_text(f"{head}app = Detent('sqlite:///{tmp_path}/detent.db')\n{PROGRAM}")
    with load(str(path)) as app:
        yield str(path), Place(app)
