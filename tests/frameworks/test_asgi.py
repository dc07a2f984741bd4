"""The app lives as long as the web server: open before the first request, closed after all."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from detent import Detent
from detent.errors import BadSchedule, StoreError
from detent.frameworks.asgi import lifespan


def shop(url: str, *, upkeep: bool = True) -> tuple[Detent, FastAPI]:
    app = Detent(url)
    web = FastAPI(lifespan=lifespan(app, upkeep=upkeep))

    @app.schedule("@daily")
    @app.job
    def mail(order: int = 0) -> int:
        return order

    @web.post("/orders/{number}")
    async def order(number: int) -> str:
        return (await mail.aenqueue(number)).id

    return app, web


def test_requests_enqueue_and_the_server_does_the_upkeep(tmp_path: Path) -> None:
    app, web = shop(f"sqlite://{tmp_path}/jobs.db")
    with TestClient(web) as client:
        job = client.post("/orders/7").json()
        assert app.drain() == [job]
        while not app.schedules.list():
            pass
    with TestClient(web):
        assert app.handle(job).result() == 7
    app.close()


def test_upkeep_can_be_left_to_others(tmp_path: Path) -> None:
    app, web = shop(f"sqlite://{tmp_path}/jobs.db", upkeep=False)
    with TestClient(web):
        assert app.schedules.list() == []
    app.close()


def test_a_wrong_address_is_told_when_the_server_starts() -> None:
    _, web = shop("nowhere://")
    with pytest.raises(StoreError), TestClient(web):
        pass


def test_a_schedule_that_cannot_work_is_told_when_the_server_starts(tmp_path: Path) -> None:
    app, web = shop(f"sqlite://{tmp_path}/jobs.db")
    app.schedules.add("@daily", app.jobs["mail"].using(delay=1).bind(), name="impossible")
    with pytest.raises(BadSchedule), TestClient(web):
        pass
    app.close()
