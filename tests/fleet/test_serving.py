"""The server of a fleet: it is up when it says so itself, whoever listens at its address."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from detent import stores
from detent.app.fleet.orders import Orders, Told, Web
from detent.app.fleet.serving import server_of
from detent.runtime.supervisor.body import Body, Handover, Waiting
from tests.fleet.servers import free_port
from tests.fleet.yard import Yard
from tests.surfaces.jobnik import Jobnik
from tests.surfaces.server import on
from tests.waiting import eventually, until
from tools.postgres import Server

pytestmark = pytest.mark.slow
HANDOVER = Handover(instance="i-1", slot="server", resume_id="r-1")


def made(folder: Path, port: int, url: str = "") -> Body:
    url = url or f"sqlite:///{folder}/detent.db"
    stores.run_migrations(url)
    (folder / "program.py").write_text(f"from detent import Detent\napp = Detent({url!r})\n")
    told = Told(reference="program.py")
    orders = Orders(told=told, web=Web(port=port), home=str(folder))
    # What it writes is not kept: that is no folder.
    [spec] = server_of(orders, url, Path(os.devnull), "")
    return spec.make()


async def test_another_program_at_its_port_is_not_taken_for_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        body = made(tmp_path, taken.getsockname()[1])
        await body.spawn(HANDOVER)
        ready = asyncio.ensure_future(body.ready())
        seen = await asyncio.wait_for(body.ended(), 30)
        assert (seen.exit_code, ready.done()) == (2, False)
        ready.cancel()


async def test_it_is_ready_when_it_listens_and_then_answers_whether_it_is_well(
    tmp_path: Path,
) -> None:
    port = free_port()
    body = made(tmp_path, port)
    await body.spawn(HANDOVER)
    await asyncio.wait_for(body.ready(), 30)
    with socket.create_connection(("127.0.0.1", port)):
        assert await asyncio.wait_for(body.probe(), 30)
    await body.ask(10)
    assert (await asyncio.wait_for(body.ended(), 30)).exit_code == 0


def test_up_hands_the_options_for_jobnik_to_its_server(yard: Yard) -> None:
    port = free_port()
    told = ("--jobnik-pages", "--jobnik-lease", "a=b=2.5", "--jobnik-lease", "60")
    fleet = yard.begin(*told, "--port", str(port), verb="up")
    eventually(lambda: "the server listens at" in yard.log(fleet))
    client = Jobnik(port)
    assert client.get("/jobs") == {"total": 0, "items": []}
    leases = []
    for type_ in ("a=b", "c"):
        [task] = client.tasks(client.stage(client.job(), type_))
        client.take(type_)
        leases.append(_lease_us(yard.url, task))
    client.close()
    assert leases == [2_500_000, 60_000_000]
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0
    refused = yard.begin("--jobnik-lease", "a=never", verb="up")
    assert refused.wait(60) == 2
    assert "--jobnik-lease a=never: [TYPE=]SECONDS" in yard.log(refused)


def _lease_us(url: str, task: str) -> int | None:
    [stored] = on(url, lambda engine: engine.store.get([("", task)]))
    found: int | None = stored.job.lease_us
    return found


@pytest.mark.campaign
async def test_it_waits_for_a_database_that_is_away(server: Server, tmp_path: Path) -> None:
    url = server.url("postgres")
    body = made(tmp_path, free_port(), url)
    assert isinstance(body, Waiting)
    server.control("stop", "-m", "immediate")
    await body.spawn(HANDOVER)
    await until(lambda: any("the store is away" in line for line in body.tail(20)))
    assert body.waits
    server.control("start")
    await asyncio.wait_for(body.ready(), 60)
    await body.ask(10)
    assert (await asyncio.wait_for(body.ended(), 30)).exit_code == 0
