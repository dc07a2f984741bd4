"""What has ended is kept as long as is set about its queue; dead letters by a rule of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent import stores
from detent.surfaces.http.exchange import Settings
from detent.surfaces.ojs import dead_letters
from tests.postgres.server import databases
from tests.surfaces.server import Client, eventually, running

LETTER = {"retry": {"max_attempts": 1, "on_exhaustion": "dead_letter"}}


class Office:
    """Two servers that look often, and somebody who seals."""

    def __init__(self, url: str, client: Client) -> None:
        self._url = url
        self.client = client

    def seal(self) -> None:
        """Seal all there is, as upkeep does every minute."""

        async def sealed() -> None:
            async with stores.open(self._url) as store:
                while await store.seal() is not None:
                    pass

        asyncio.run(sealed())

    def has(self, name: str) -> bool:
        """Whether the record of that very id is stored."""

        async def found() -> bool:
            async with stores.open(self._url) as store:
                return (await store.get([("", name)]))[0] is not None

        return asyncio.run(found())

    def end(self, queue: str, how: str, **options: Any) -> str:
        """A job that has ended in this way, by id."""
        job = self.client.push("x", queue=queue, **options)
        if how == "cancelled":
            self.client.delete(f"/jobs/{job['id']}").ok()
            return str(job["id"])
        [taken] = self.client.fetch(queue)
        if how == "completed":
            self.client.ack(taken)
        else:
            self.client.nack(taken, retryable=False)
        return str(job["id"])

    def is_there(self, name: str) -> bool:
        return self.client.get(f"/jobs/{name}").status == 200


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def office(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Office]:
    folder: Path = tmp_path_factory.mktemp("office")
    url = f"sqlite:///{folder}/detent.db" if request.param == "sqlite" else databases().kept()
    settings = Settings(keep_s=0.05)
    with running(url, settings) as first, running(url, settings):
        client = Client(first.port)
        yield Office(url, client)
        client.close()


def test_what_has_ended_goes_when_its_queue_says_so(office: Office) -> None:
    short = {"completed": "PT0.1S", "cancelled": "PT0.1S", "discarded": "PT0.1S"}
    office.client.put("/admin/queues/short/config", {"retention": short}).ok()
    gone = [office.end("short", how) for how in ("completed", "cancelled", "discarded")]
    letter = office.end("short", "discarded", **LETTER)
    stays = [office.end("other", how) for how in ("completed", "cancelled", "discarded")]
    live = office.client.push("x", queue="short")["id"]
    office.seal()
    eventually(lambda: not any(map(office.is_there, gone)))
    assert all(map(office.is_there, [letter, *stays, live]))


def test_what_runs_again_is_found_when_its_first_run_is_forgotten(office: Office) -> None:
    office.client.put("/admin/queues/twice/config", {"retention": {"cancelled": "PT0.1S"}}).ok()
    name = office.end("twice", "cancelled")
    office.client.post(f"/admin/jobs/{name}/retry").ok()
    office.seal()
    eventually(lambda: not office.has(name))
    assert office.client.job(name)["state"] == "available"
    [job] = office.client.fetch("twice")
    assert job["id"] == name
    office.client.ack(job)


def test_a_queue_may_keep_longer_than_is_usual(office: Office) -> None:
    usual, long = {"completed": "PT0.1S", "cancelled": "PT0.1S"}, {"completed": "P1D"}
    office.client.put("/admin/queues/long/config", {"retention": long}).ok()
    office.client.put("/admin/queues/_default/config", {"retention": usual}).ok()
    gone = [office.end("long", "cancelled"), office.end("any", "completed")]
    stays = [office.end("long", "completed"), office.end("any", "discarded")]
    office.seal()
    eventually(lambda: not any(map(office.is_there, gone)))
    assert all(map(office.is_there, stays))
    office.client.put("/admin/queues/_default/config", {}).ok()


def test_of_too_many_dead_letters_the_oldest_go(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [office.end("letters", "discarded", **LETTER) for _ in range(4)]
    again = office.end("letters", "discarded", **LETTER)
    office.client.post(f"/dead-letter/{again}/retry").ok()
    before = len(office.client.get("/dead-letter").ok()["jobs"])
    monkeypatch.setattr(dead_letters, "KEPT_MAX", 2)
    monkeypatch.setattr("detent.surfaces.ojs.retention._LETTERS_TURNS", 2)
    eventually(lambda: not any(map(office.is_there, names[:2])))
    assert all(map(office.is_there, [*names[2:], again]))
    told = office.client.get("/events?types=dead_letter.pruned&limit=1000").ok()["events"]
    pruned = [one["data"]["job_id"] for one in told]
    assert set(names[:2]) <= set(pruned)
    assert len(pruned) == len(set(pruned)) == before - 2


def test_old_dead_letters_go(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    name = office.end("old", "discarded", **LETTER)
    stats = office.client.get("/dead-letter/stats").ok()["retention"]
    assert stats == {"max_age": "P180D", "max_entries": 10_000}
    monkeypatch.setattr(dead_letters, "KEPT_US", 1)
    monkeypatch.setattr("detent.surfaces.ojs.retention._LETTERS_TURNS", 2)
    eventually(lambda: not office.is_there(name))
