"""One server per store for all tests of a process, wiped between them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.surfaces.http.exchange import Settings
from tests.postgres.server import databases
from tests.surfaces.engines import Yard
from tests.surfaces.jobnik import Jobnik
from tests.surfaces.rest import SECRET_KEY, Rest, Site, program, worker
from tests.surfaces.server import Client, Running, running
from tests.surfaces.town import Town


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A server in test mode."""
    folder: Path = tmp_path_factory.mktemp("server")
    url = f"sqlite:///{folder}/detent.db" if request.param == "sqlite" else databases().kept()
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


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A server that knows a program, and a worker that runs it."""
    folder: Path = tmp_path_factory.mktemp("site")
    url = f"sqlite:///{folder}/detent.db" if request.param == "sqlite" else databases().kept()
    with pytest.MonkeyPatch.context() as patch:
        # Beside another database than a file there is no place for a key.
        patch.setenv("DETENT_SECRET_KEY", SECRET_KEY)
        with running(url, Settings(stall_s=1.0), program(url)) as found, worker(url):
            yield Site(url, found.port, folder)


@pytest.fixture
def rest(site: Site) -> Iterator[Rest]:
    """Somebody who speaks to it."""
    found = Rest(site.port)
    yield found
    found.close()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def yard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    """A server for engines; the store is not empty, so names must be fresh."""
    folder: Path = tmp_path_factory.mktemp("yard")
    url = f"sqlite:///{folder}/detent.db" if request.param == "sqlite" else databases().kept()
    with running(url, Settings(stall_s=1.0, legacy_events=True)) as found:
        yield Yard(url, found.port)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def town(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Town]:
    """Two servers of one store."""
    folder: Path = tmp_path_factory.mktemp("town")
    url = f"sqlite:///{folder}/detent.db" if request.param == "sqlite" else databases().kept()
    with running(url, Settings()) as first, running(url, Settings()) as second:
        found = Town([first, second])
        yield found
        found.close()
