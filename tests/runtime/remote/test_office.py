"""A worker's side of the conversation, with a real server behind keys on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detent import Detent
from detent.engine.access import Scope
from detent.engine.asks import Ask
from detent.engine.commands import Beside, Change
from detent.errors import NoStore, ServerRefused
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.runtime.remote.address import Server
from detent.runtime.remote.client import Client
from detent.runtime.remote.office import RemoteOffice
from detent.runtime.worker.settings import Settings as WorkerSettings
from detent.stores.api import Death, Line, Note, Stored, Want, WorkerRow, key_of
from detent.surfaces.http.exchange import Settings
from tests.surfaces.server import running

BY = By(Actor.WORKER, "w1")
Work = Callable[[RemoteOffice], Awaitable[Any]]


class Town:
    """A store, its server, and workers that are let in for one tenant only."""

    def __init__(self, app: Detent, port: int) -> None:
        self.app = app
        self._url = f"http://127.0.0.1:{port}"

    def key(self, *scopes: Scope) -> str:
        return self.app.bridge.run(self._key(scopes))

    async def _key(self, scopes: tuple[Scope, ...]) -> str:
        access = (await self.app.engine()).access
        return (await access.create(scopes, tenants=["acme"]))[1]

    def enqueue(self, size: int = 1) -> None:
        asks = [Ask(type="mail", tenant="acme") for _ in range(size)]
        self.app.bridge.run(self._enqueue(asks))

    async def _enqueue(self, asks: list[Ask]) -> None:
        await (await self.app.engine()).enqueue(asks, self.app.by)

    def stored(self, one: Stored) -> Stored:
        """A job as the store has it."""
        return self.app.bridge.run(self._stored(one))

    async def _stored(self, one: Stored) -> Stored:
        [found] = await (await self.app.engine()).store.get([key_of(one.job)])
        assert found is not None
        return found

    def work(self, key: str, work: Work) -> Any:
        """What comes of some work with the office of a worker."""

        async def run() -> Any:
            client = Client(Server(urls=(self._url,), key=key))
            try:
                return await work(RemoteOffice(client, "w1", WorkerSettings(), {}))
            finally:
                client.close()

        return asyncio.run(run())


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    url = f"sqlite:///{tmp_path}/detent.db"
    with Detent(url) as app, running(url, Settings()) as server:
        yield Town(app, server.port)


def want(size: int = 10) -> Want:
    leases = tuple(f"l{number}" for number in range(size))
    return Want(command_id="c1", by=BY, holder="w1", leases=leases, queues=("default",))


def completing(one: Stored, *new: Ask) -> Change:
    done = j.Complete(lease=one.job.lease)
    return Change(key_of(one.job), done, BY, beside=Beside("1"), known=one, new=new)


def test_whoever_is_for_one_tenant_holds_on_to_its_jobs(town: Town) -> None:
    town.enqueue(2)

    async def work(office: RemoteOffice) -> tuple[Any, ...]:
        claimed = (await office.claim(want())).jobs
        again = (await office.claim(want())).jobs
        assert await office.beat([WorkerRow("w1", 0)], now=0) == [True]
        looked = await office.get([key_of(one.job) for one in claimed])
        note = Note(0, 1, 50, "half")
        first = claimed[0]
        await office.note([(key_of(first.job), first.job.lease or "", note)], now=0)
        await office.append_logs([(key_of(first.job), Line(1, "hello"))])
        follower = Ask(type="later")
        answers = await office.carry_out([completing(first, follower), completing(claimed[1])])
        gone = await office.get([key_of(first.job)])
        return claimed, again, looked, answers, gone

    claimed, again, looked, answers, gone = town.work(town.key(Scope.WORK, Scope.PRODUCE), work)
    assert len(claimed) == 2
    assert claimed == again
    assert [one.job.lease for one in looked] == [one.job.lease for one in claimed]
    assert {answer.job.state for answer in answers} == {j.JobState.COMPLETED}
    assert gone == [None]
    found = town.stored(claimed[0])
    assert (found.result, found.note and found.note.percent) == ("1", 50)
    [later] = town.work(town.key(Scope.WORK), lambda one: _claimed(one, "c2"))
    assert (later.body.type, later.job.tenant) == ("later", "acme")


async def _claimed(office: RemoteOffice, name: str) -> tuple[Stored, ...]:
    return (await office.claim(replace(want(), command_id=name))).jobs


def test_a_key_without_that_right_refuses_what_follows_before_anything_is_done(
    town: Town,
) -> None:
    town.enqueue()

    async def work(office: RemoteOffice) -> Stored:
        [one] = await _claimed(office, "c1")
        with pytest.raises(ServerRefused) as caught:
            await office.carry_out([completing(one, Ask(type="later"))])
        assert caught.value.fields["why"] == "forbidden"
        return one

    assert town.stored(town.work(town.key(Scope.WORK), work)).job.state is j.JobState.ACTIVE


def test_who_has_gone_has_lost_its_jobs_and_limits_are_not_for_it(town: Town) -> None:
    town.enqueue()

    async def work(office: RemoteOffice) -> Any:
        [one] = await _claimed(office, "c1")
        await office.bury([Death("w1")], now=0)
        assert await office.get([key_of(one.job)]) == [None]
        with pytest.raises(NoStore):
            await office.set_limits([])
        return await office.carry_out([completing(one)])

    [answer] = town.work(town.key(Scope.WORK), work)
    assert isinstance(answer, Refusal)
