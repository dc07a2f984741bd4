"""A machine boots in any order: fleets wait for whoever keeps their jobs, and say so."""

from __future__ import annotations

import signal

import pytest

from tests.fleet.servers import free_port
from tests.fleet.yard import Yard
from tests.waiting import eventually
from tools.postgres import Server

pytestmark = pytest.mark.slow
AWAY = "nothing is started yet, because the {} is away"


def test_a_database_that_comes_up_later_is_waited_for(server: Server, far: Yard) -> None:
    server.control("stop", "-m", "fast")
    fleet = far.begin("--workers", "1")
    eventually(lambda: far.log(fleet).count(AWAY.format("store")) > 2)
    server.control("start")
    eventually(lambda: far.is_up(fleet))
    assert far.enqueue("quick", 7).result(timeout=60) == 7
    assert "the store is there" in far.log(fleet)


def test_who_waits_for_a_database_ends_when_told_to(server: Server, far: Yard) -> None:
    server.control("stop", "-m", "fast")
    fleet = far.begin("--no-server", verb="up")
    eventually(lambda: AWAY.format("store") in far.log(fleet))
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(timeout=10) == 0, far.log(fleet)
    server.control("start")


def test_a_database_that_is_not_there_is_refused_at_once(server: Server, far: Yard) -> None:
    program = far.folder / "program.py"
    program.write_text(program.read_text().replace(repr(far.url), ""))
    fleet = far.begin("--store", server.url("nowhere"))
    assert fleet.wait(timeout=60) == 2
    assert 'database "nowhere" does not exist' in far.log(fleet)
    assert AWAY.format("store") not in far.log(fleet)


def test_a_server_that_comes_up_later_is_waited_for_as_well(yard: Yard) -> None:
    fleet = yard.begin("--server", f"http://127.0.0.1:{free_port()}", "--key", "none")
    eventually(lambda: AWAY.format("server") in yard.log(fleet))
    assert not yard.workers(), "nobody is started to be given up as not ready in time"
    fleet.send_signal(signal.SIGINT)
    assert fleet.wait(timeout=10) == 0, yard.log(fleet)
