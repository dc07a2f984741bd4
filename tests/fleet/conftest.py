"""A yard per test, on both databases where that matters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detent import stores
from tests.fleet.yard import Yard
from tests.postgres.server import databases
from tools.postgres import QUICK, Server


@pytest.fixture
def store() -> str:
    """SQLite, unless a test says otherwise."""
    return "sqlite"


@pytest.fixture
def program() -> str:
    """What the fleets run."""
    return "program.txt"


@pytest.fixture
def yard(store: str, program: str, tmp_path: Path) -> Iterator[Yard]:
    """A program, its store and its fleets."""
    url = f"sqlite:///{tmp_path}/detent.db" if store == "sqlite" else databases().of(tmp_path)
    yard = Yard(tmp_path, url, program)
    try:
        yield yard
    finally:
        yard.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A database server that nobody else uses, and that forgets nothing when it is killed."""
    with Server(**{**QUICK, "synchronous_commit": "on"}) as server:
        yield server


@pytest.fixture
def far(server: Server, program: str, tmp_path: Path) -> Iterator[Yard]:
    """A yard whose store is on that server."""
    url = server.url("postgres")
    stores.run_migrations(url)
    yard = Yard(tmp_path, url, program)
    try:
        yield yard
    finally:
        yard.close()
