"""After kill -9 of a process that drains, short drains bring its job back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from detent import Detent
from detent.stores.api import Stored
from detent.testing import VirtualClock
from tests.postgres.server import databases


def url_of(store: str, folder: Path) -> str:
    return f"sqlite:///{folder}/detent.db" if store == "sqlite" else databases().of(folder)


def made(url: str, clock: VirtualClock | None = None) -> Detent:
    app = Detent(url, clock=clock)

    @app.job(name="stand")
    def stand() -> str:
        return "done"

    return app


def killed_in_its_job(*args: str) -> int:
    """The pid of a process that was killed while it ran the only job there is."""
    command = [sys.executable, str(Path(__file__).with_name("dying.py")), *args]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as child:  # noqa: S603
        assert child.stdout is not None
        assert child.stdout.readline() == b"standing\n"
        child.kill()
        child.wait()
    return child.pid


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_the_next_drain_on_the_same_host_runs_the_job(store: str, tmp_path: Path) -> None:
    url = url_of(store, tmp_path)
    with made(url) as app:
        handle = app.jobs["stand"].enqueue()
    pid = killed_in_its_job(url)
    with made(url) as app:
        assert app.drain() == [handle.id]
        lost = [event for event in app.handle(handle.id).history() if event.name == "lose"]
        assert [event.code for event in lost] == ["lease_lost"]
        assert f"(pid {pid} on " in (lost[0].reason or "")
        assert "its last heartbeat was at 2" in (lost[0].reason or "")
        [failure] = app.bridge.run(_stored(app, handle.id)).failures
        assert json.loads(failure.details or "")["pid"] == pid


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_short_drains_elsewhere_run_it_when_the_grace_is_used_up(
    store: str, tmp_path: Path
) -> None:
    url = url_of(store, tmp_path)
    with made(url) as app:
        handle = app.jobs["stand"].enqueue()
    killed_in_its_job(url, "elsewhere")
    clock = VirtualClock()
    ran: list[list[str]] = []
    while handle.id not in (ran[-1] if ran else []):
        assert len(ran) < 10, "the job stays active for ever"
        clock.advance(20)
        with made(url, clock) as app:
            ran.append(app.drain())
    # The one that was killed had granted fifteen seconds; each silence uses up three of them.
    assert len(ran) == 5


async def _stored(app: Detent, job: str) -> Stored:
    [stored] = await (await app.engine()).store.get([("", job)])
    assert stored is not None
    return stored
