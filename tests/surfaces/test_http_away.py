"""A store that is really away, and a fault that nobody foresaw: each surface in its own shape."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from detent import stores
from detent.engine.engine import Engine
from detent.errors import StoreUnavailable
from detent.surfaces.http import service
from detent.surfaces.http.service import Service
from tests.surfaces.jobnik import Jobnik, problem
from tests.surfaces.rest import Rest
from tests.surfaces.server import Answer, Client, eventually, running
from tests.waiting import until
from tools.postgres import QUICK, Server

INSIDE = ("Traceback", "asyncpg", "sqlite3", "msgspec", ".py", "postgres")


def callers(port: int) -> tuple[Rest, Client, Jobnik]:
    return Rest(port), Client(port), Jobnik(port)


def need_silent(*answers: Answer) -> None:
    """Nothing of the inside is told, and the request can be found in the log."""
    for one in answers:
        assert not [word for word in INSIDE if word in one.text.decode()]
        assert one.headers["x-request-id"]


@pytest.fixture
def postgres() -> Iterator[Server]:
    with Server(**QUICK) as found:
        stores.run_migrations(found.url("postgres"))
        yield found


def test_a_store_that_is_away_is_told_by_all_and_comes_back(postgres: Server) -> None:
    with running(postgres.url("postgres")) as server:
        rest, client, jobnik = callers(server.port)
        name = rest.post("", {"action": "a"}).ok(202)["job"]["id"]
        postgres.control("stop", "-m", "fast")
        try:
            away = [rest.get(f"/{name}"), rest.get(), rest.post("", {"action": "a"})]
            for one in away:
                rest.refused(one, 503, "SERVICE_UNAVAILABLE")
            pushed = client.post("/jobs", {"type": "a", "args": []})
            assert pushed.error(503, "unavailable")["retryable"] is True
            plain, sdk = client.get("/health"), client.get("/health", OJS_Version="1.0")
            backends = [one.body["backend"]["status"] for one in (plain, sdk)]
            assert (plain.status, backends) == (503, ["unhealthy", "disconnected"])
            told = [*away, pushed]
            # Its clients ask again at once when they hear 503, so they hear 500.
            for one in (rest.get("/engine/types"), rest.post("/engine/jobs", {"jobType": "A"})):
                assert (one.status, one.body["error"]["code"]) == (503, "UNAVAILABLE")
                told.append(one)
            asked = jobnik.ask("GET", "/jobs")
            problem(asked, 500, "DATABASE_RELATED_ERROR", "Internal Server Error")
            assert all(int(one.headers["retry-after"]) >= 1 for one in told)
            need_silent(*told, asked)
        finally:
            postgres.control("start")
        eventually(lambda: rest.get(f"/{name}").status == 200)
        eventually(lambda: client.post("/jobs", {"type": "a", "args": []}).status == 201)
        eventually(lambda: jobnik.ask("GET", "/jobs").status == 200)
        assert rest.job(name)["state"] == "pending"
        for caller in (rest, client, jobnik):
            caller.close()


def test_a_fault_that_nobody_foresaw_shows_no_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A row that cannot be read any more: what that means is in the log, under the request's id."""
    with running(f"sqlite:///{tmp_path}/detent.db") as server:
        rest, client, jobnik = callers(server.port)
        name = client.push("a", 1)["id"]
        work = jobnik.ask("POST", "/jobs", {"name": "DEFAULT", "data": {}, "userMetadata": {}})
        damage(tmp_path / "detent.db")
        told: list[Any] = [rest.get(f"/{name}"), client.get(f"/jobs/{name}")]
        rest.refused(told[0], 500, "INTERNAL_SERVER_ERROR")
        told[1].error(500, "internal_error")
        told.append(jobnik.ask("GET", f"/jobs/{work.body['id']}"))
        problem(told[2], 500, "UNKNOWN_ERROR", "Internal Server Error")
        need_silent(*told)
        for one in told:
            assert one.headers["x-request-id"] in caplog.text
        for caller in (rest, client, jobnik):
            caller.close()


def damage(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(r"UPDATE detent_bodies SET payload = '{\u', meta = '{'")
        file.execute("UPDATE detent_records SET data = '{'")


async def test_a_store_that_is_away_for_long_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries: list[str] = []

    async def work() -> None:
        tries.append("x")
        raise StoreUnavailable("it is away")

    one = Service(opened_later)
    one.keep("upkeep", work)
    await until(lambda: len(tries) == 3)
    await one.stop()
    # Servers of other tests are at work beside it, and say what they have to say.
    told = [one.getMessage() for one in caplog.records if one.name == service.__name__]
    assert told == ["upkeep cannot go on, and is tried again: it is away"]


async def opened_later(_: AsyncExitStack) -> Engine:
    raise NotImplementedError
