"""One server per store for all tests of a process, wiped between them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres.server import databases
from tests.surfaces.jobnik import Jobnik
from tests.surfaces.server import Client, Running, running


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A server in test mode."""
    folder: Path = tmp_path_factory.mktemp("server")
    url = f"sqlite:///{folder}/detent.db" if request.param == "sqlite" else databases().of(folder)
    with pytest.MonkeyPatch.context() as patch:
        # A database that is no file has no key beside it.
        patch.setenv("DETENT_SECRET_KEY", base64.b64encode(bytes(32)).decode())
        with running(url) as found:
            yield found


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    """Somebody who finds an empty store."""
    found = Client(server.port)
    found.post("/admin/reset").ok()
    yield found
    found.close()


@pytest.fixture
def jobnik(server: Running) -> Iterator[Jobnik]:
    """Somebody who speaks Jobnik; the store is not empty, so names must be fresh."""
    found = Jobnik(server.port)
    yield found
    found.close()
