"""`detent replay` and `detent events`: what was, and what happens."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from detent import Detent
from tests.cli.commands import detent
from tests.surfaces.server import eventually


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('past')}/jobs.db"


@pytest.fixture(scope="module")
def job(store: str) -> str:
    """A job that was enqueued, and cancelled a moment later."""
    # Instants are told in milliseconds, and these two are to differ: every look is a second later.
    clock = count(time.time_ns() // 1_000 - 600_000_000, 1_000_000).__next__
    with Detent(store, clock=clock) as app:

        @app.job(name="mail")
        def mail() -> None:
            """Nobody runs it."""

        handle = mail.enqueue()
        handle.cancel()
        return handle.id


def test_replay_shows_a_job_as_it_was(store: str, job: str) -> None:
    now = detent("replay", job, "--store", store, "--json").data
    assert (now["state"], now["views"]["rest"], now["version"]) == ("cancelled", "cancelled", 2)
    assert now["fault"] is None
    history = detent("jobs", "history", job, "--store", store, "--json").data["events"]
    then = detent("replay", job, "--at", history[0]["at"].replace("Z", "999Z"), "--store", store)
    assert then.code == 0
    assert "available" in then.said
    assert "cancelled" not in then.said
    gone = detent("replay", job, "--at", "2020-01-01T00:00:00Z", "--store", store)
    assert (gone.code, "not there yet" in gone.said) == (1, True)


@pytest.mark.parametrize("when", ["yesterday", "2026-01-31T12:00:00"])
def test_replay_needs_an_instant(store: str, job: str, when: str) -> None:
    assert detent("replay", job, "--at", when, "--store", store).code == 2


def test_events_are_printed_from_a_cursor(store: str, job: str) -> None:
    said = detent("events", "--store", store, "--json").said.splitlines()
    told = [json.loads(line) for line in said]
    assert [(one["cursor"], one["id"], one["event"]) for one in told] == [
        (1, job, "enqueue"),
        (2, job, "cancel"),
    ]
    plain = detent("events", "--since", "1", "--speed", "10", "--store", store).said
    assert plain.startswith("2  ")
    assert "available -> cancelled" in plain
    assert detent("events", "--since", "2", "--store", store).said == ""
    assert detent("events", "--since", str(2**63), "--store", store).code == 2


def test_events_are_followed(store: str, job: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = [sys.executable, "-m", "detent", "events", "--follow", "--since", "1"]
    with said.open("w") as file:
        process = subprocess.Popen([*command, "--store", store], stdout=file)  # noqa: S603
    try:
        with Detent(store) as app:

            @app.job(name="mail")
            def mail() -> None:
                """Nobody runs it."""

            new = mail.enqueue().id
        eventually(lambda: new in said.read_text("utf-8"))
        assert job in said.read_text("utf-8")
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait()
